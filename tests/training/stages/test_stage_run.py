"""What a run leaves behind, and what may be gone on with."""

from __future__ import annotations

import errno
import json
import math
from pathlib import Path

import pytest

from stitchcuda.errors import BadInput, Unavailable
from stitchcuda.training.stages.stage_run import LOG, RunSummary, RunTerms, StageRun

TERMS = RunTerms(table="grpo", digest="a" * 64, stage={"kl": 0.03, "seed": 0})


@pytest.fixture
def folder(tmp_path: Path) -> StageRun:
    """A run that was stopped while its second save point was being written."""
    folder = StageRun(tmp_path / "out")
    assert folder.begin(TERMS, resume=False) == 0
    for update in (3, 6):
        folder.saved(update).mkdir(parents=True)
    folder.mark_saved(3, TERMS.digest)
    folder.append(LOG, *({"update": update, "loss": 1.0} for update in range(1, 6)))
    with (folder.out / LOG).open("a") as file:
        file.write('{"update": 6, "lo')
    return folder


def test_a_run_goes_on_from_its_last_complete_save_point_and_its_log_too(folder: StageRun) -> None:
    assert folder.begin(TERMS, resume=True) == 3
    assert [line["update"] for line in folder.lines(LOG)] == [1, 2, 3]
    assert folder.require_saved_by(3, TERMS.digest) == folder.saved(3)


def test_another_run_is_not_gone_on_with(folder: StageRun, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="not empty: give a new folder, or --resume"):
        folder.begin(TERMS, resume=False)
    other = TERMS.model_copy(update={"digest": "b" * 64, "stage": {"kl": 0.5, "seed": 0}})
    with pytest.raises(BadInput, match=r"is a run of another config \(grpo.kl = 0.03\)"):
        folder.begin(other, resume=True)
    with pytest.raises(BadInput, match="other rows: the data has changed"):
        folder.begin(TERMS.model_copy(update={"digest": "b" * 64}), resume=True)
    with pytest.raises(BadInput, match="is a save point of another run"):
        folder.require_saved_by(3, "b" * 64)
    with pytest.raises(BadInput, match="holds no run to go on with"):
        StageRun(tmp_path / "none").begin(TERMS, resume=True)


def test_a_summary_ends_a_run(folder: StageRun) -> None:
    assert folder.summary() is None
    summary = RunSummary(steps=1, updates=1, result="adapter", sha256="c" * 64)
    folder.finish(summary)
    assert folder.summary() == summary


def test_a_full_disk_is_one_sentence(tmp_path: Path) -> None:
    folder = StageRun(tmp_path)
    (tmp_path / LOG).symlink_to("/dev/full")
    with pytest.raises(Unavailable, match="no space left to write"):
        folder.append(LOG, {"update": 1})


@pytest.mark.more
def test_a_trainer_s_words_for_a_full_disk_are_known() -> None:
    """Imports torch and transformers, which takes seconds."""
    training = pytest.importorskip("stitchcuda.training.stages.training", exc_type=ImportError)
    outer = RuntimeError("it failed")
    outer.__cause__ = OSError(errno.ENOSPC, "out of room")
    assert training.is_full(outer)
    assert training.is_full(RuntimeError("I/O error: No space left on device (os error 28)"))
    assert training.is_full(RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 73920 vs 73808"))
    assert not training.is_full(RuntimeError("it failed"))


@pytest.mark.more
def test_a_loss_that_is_no_number_stops_before_anything_is_saved(folder: StageRun) -> None:
    callback = pytest.importorskip("stitchcuda.training.stages.stage_callback", exc_type=ImportError)
    from transformers import TrainerControl, TrainerState, TrainingArguments

    folder.begin(TERMS, resume=True)
    made = callback.StageCallback(folder, TERMS.digest, 2, lambda line: None)
    arguments = TrainingArguments(output_dir=str(folder.out / "x"), use_cpu=True, report_to=[])
    state, control = TrainerState(global_step=7, max_steps=8), TrainerControl()
    made.on_log(arguments, state, control, logs={"loss": 0.5, "grad_norm": 1.0, "reward": -1.0})
    assert json.loads((folder.out / LOG).read_text().splitlines()[-1])["update"] == 7
    for name in ("loss", "grad_norm"):
        with pytest.raises(Unavailable, match=f"{name} is nan at update 7"):
            made.on_log(arguments, state, control, logs={"loss": 0.5, "grad_norm": 1.0, name: math.nan})
