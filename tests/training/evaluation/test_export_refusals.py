"""What an export refuses: one sentence each, and nothing is left behind."""

from __future__ import annotations

import errno
import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from stitchcuda.cli.app import app
from stitchcuda.training.stages.stage_run import RunSummary, RunTerms, StageRun
from tests.training.stages.tiny_model import tiny_model

pytestmark = pytest.mark.more              # each imports transformers and PEFT, which takes seconds
pytest.importorskip("peft")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a model, and a finished run of GRPO that made an adapter on it."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    from stitchcuda.training.stages.training import weights_digest

    monkeypatch.chdir(tmp_path)
    tiny_model(tmp_path / "model", ["answer"])
    run = StageRun(tmp_path / "run")
    stage = {"model": "model", "reward": "log-speedup/1", "tasks": "tasks.jsonl", "data": "data", "reward_url": "http://judge"}
    run.begin(RunTerms(table="grpo", digest="a" * 64, stage=stage), resume=False)
    lora = LoraConfig(r=20, target_modules="all-linear", task_type="CAUSAL_LM", init_lora_weights=False)
    get_peft_model(AutoModelForCausalLM.from_pretrained("model"), lora).save_pretrained("run/adapter")
    run.finish(RunSummary(steps=1, updates=1, result="adapter", sha256=weights_digest(tmp_path / "run" / "adapter")))
    return tmp_path


def export(*arguments: str) -> tuple[int, dict[str, str]]:
    done = CliRunner().invoke(app, ["train", "export", "run", "--into", "out", "--json", *arguments])
    return done.exit_code, json.loads(done.stdout.splitlines()[-1])


def refusal(*arguments: str) -> str:
    code, said = export(*arguments)
    assert code == 2, said
    assert [path for path in Path.cwd().iterdir() if path.name == "out" or path.name.startswith(".tmp-")] == []
    return said["error"]


def test_a_run_that_is_none_or_not_finished_is_refused(folder: Path) -> None:
    shutil.rmtree("run/adapter")
    assert "run/adapter, the result of the run, is gone" in refusal()
    Path("run/summary.json").unlink()
    assert "the run run is not finished: go on with it by --resume" in refusal()
    Path("run/run.json").write_text("{}")
    assert "run is no run of a stage" in refusal()


def test_weights_that_were_changed_and_a_model_without_a_chat_template_are_refused(folder: Path) -> None:
    Path("model/chat_template.jinja").unlink()
    assert "model has no chat template" in refusal()
    Path("run/adapter/adapter_model.safetensors").write_bytes(b"changed")
    assert "the weights in run/adapter are not those of run/summary.json" in refusal()


def test_an_evaluation_has_to_be_of_the_run(folder: Path) -> None:
    assert "eval is no finished evaluation" in refusal("--evaluation", "eval")


def test_a_folder_that_is_there_is_left_as_it_is(folder: Path) -> None:
    Path("out").mkdir()
    code, said = export()
    assert code == 2
    assert "out is there already: give a new folder" in said["error"]
    assert list(Path("out").iterdir()) == []


@pytest.mark.parametrize("merge", [[], ["--merge"]])
def test_a_full_disk_leaves_nothing_behind(folder: Path, monkeypatch: pytest.MonkeyPatch, merge: list[str]) -> None:
    def full(*arguments: object, **more: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("stitchcuda.training.export.exported.shutil.copyfile", full)
    assert "no space left to write out: free some, or give another folder; nothing of it is left" in refusal(*merge)


def test_a_run_that_trained_all_weights_is_exported_as_its_model(folder: Path) -> None:
    from stitchcuda.training.stages.training import weights_digest

    shutil.rmtree("run/adapter")
    shutil.copytree("model", "run/model")
    digest = weights_digest(Path("run/model"))
    StageRun(Path("run")).finish(RunSummary(steps=1, updates=1, result="model", sha256=digest))
    code, made = export()
    assert (code, made["form"], made["base"], made["sha256"]) == (0, "model", "", digest)
    assert "| lora" not in Path("out/README.md").read_text()


def test_a_run_of_grpo_is_exported_in_both_forms(folder: Path) -> None:
    """The adapter gives the same with its base as merged, and the card says what is not known."""
    import torch
    from peft import AutoPeftModelForCausalLM
    from transformers import AutoModelForCausalLM, AutoTokenizer

    code, made = export("--base", "model")
    assert code == 0, made
    assert "--max-lora-rank 32" in str(made["served"])
    Path("out").rename("plain")
    code, made = export("--merge")
    assert code == 0, made
    ids = AutoTokenizer.from_pretrained("out")("class Model", return_tensors="pt")["input_ids"]
    with torch.inference_mode():
        own = AutoPeftModelForCausalLM.from_pretrained("run/adapter", dtype=torch.float32)(ids).logits
        assert torch.equal(AutoPeftModelForCausalLM.from_pretrained("plain", dtype=torch.float32)(ids).logits, own)
        torch.testing.assert_close(AutoModelForCausalLM.from_pretrained("out")(ids).logits, own, rtol=1e-4, atol=1e-4)
    card = Path("out/README.md").read_text()
    assert "Reward: `log-speedup/1`, without a rubric" in card
    assert "data is not there any more" in card
    assert "Prompts for the references in `tasks.jsonl`" in card
    assert "It was not evaluated" in card
    assert "http://judge" not in card
