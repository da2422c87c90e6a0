"""Evaluation and export as a person runs them, with the real verifier on the simulator: a model before and after fine-tuning,
killed and gone on with; then the run exported in both forms, loaded again, and evaluated as such.

The model is tiny and its tokens are whole programs (`tests/training/stages/tiny_model.py`).
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from stitchcuda.training.session_rows import asked_to_write
from tests.training.stages.data_folder import data_folder, row
from tests.training.stages.test_stages_end_to_end import ANSWERS, command, train
from tests.training.stages.tiny_model import tiny_model
from tests.verify import programs

pytestmark = pytest.mark.more              # each starts processes that import transformers
pytest.importorskip("peft")
OTHER = "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x): return x.tanh()\ndef get_inputs(): return []\n"
SFT = """
[sft]
model = "model"
data = "data"
kinds = ["skill1"]
lora_rank = 16
lora_alpha = 64
learning_rate = 0.01
batch = 4
micro_batch = 4
steps = 30
max_length = 8192
"""
EVALUATE = ["evaluate", "model", "tuned", "--data", "data", "--device", "sim", "--seeds", "6", "--max-completion", "3",
            "--batch", "3", "--json"]  # fmt: skip


def asked(reference: str) -> str:
    return asked_to_write(reference)[0].content


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, a data set whose test split is not like its training split, and a finished run of fine-tuning."""
    folder = tmp_path_factory.mktemp("evaluate")
    _sharpen(tiny_model(folder / "model", list(ANSWERS.values())))
    rows = [row("skill1", f"{number}", asked(OTHER) + "\n" * number, ANSWERS["right"], OTHER) for number in range(8)]
    tests = [{**row("skill1", "0", asked(programs.REFERENCE), "", programs.REFERENCE), "id": "gate/skill1/0", "cluster": "g"}]
    data_folder(folder / "data", rows, tests)
    (folder / "sft.toml").write_text(SFT)
    tuned = train(folder, "sft", "sft.toml", "--out", "tuned", "--json")
    assert tuned.returncode == 0, tuned.stderr
    return folder


def _sharpen(model: Path) -> None:
    """Makes the head's weights larger: an adapter leaves them as they are, and through small random ones it moves little."""
    from transformers import AutoModelForCausalLM

    loaded = AutoModelForCausalLM.from_pretrained(model)
    loaded.lm_head.weight.data *= 20
    loaded.save_pretrained(model)


def error(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 2, done.stdout + done.stderr
    return str(json.loads(done.stdout)["error"])


def stamps(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file() and path.name != "lock"}


def test_before_and_after_training_in_one_command(folder: Path) -> None:
    planned = train(folder, *EVALUATE, "--out", "eval", "--dry-run")
    assert json.loads(planned.stdout)["answers"] == 12, planned.stderr
    assert not (folder / "eval").exists()
    with subprocess.Popen(command(*EVALUATE, "--out", "eval"), cwd=folder, stderr=subprocess.DEVNULL) as process:
        while len(list((folder / "eval").glob("answers/1-tuned/gate/*.json"))) < 3:
            assert process.poll() is None, "it ended before it was killed"
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    kept = stamps(folder / "eval" / "answers")
    done = train(folder, *EVALUATE, "--out", "eval")
    assert done.returncode == 0, done.stderr
    made: dict[str, Any] = json.loads(done.stdout)
    before, after = made["checkpoints"]
    assert before["figures"]["pass@1"]["value"] < 0.5 < after["figures"]["pass@1"]["value"]
    assert after["correct"] == {"gate": after["kinds"]["accepted"]}
    assert [name for name in after["figures"] if name.startswith("fast")] == ["fast_0"], "nothing was timed"
    assert after["differences"]["pass@1"]["value"] > 0.5
    assert after["differences"]["pass@1"]["noise"], "one problem shows nothing"
    assert kept.items() <= stamps(folder / "eval" / "answers").items(), "no answer is written twice"
    judged = stamps(folder / "eval" / "verdicts")
    again = train(folder, *EVALUATE, "--out", "eval")
    assert json.loads(again.stdout) == made
    assert judged == stamps(folder / "eval" / "verdicts")
    assert "0 answers to write" in again.stderr
    page = (folder / "eval" / "evaluation.md").read_text()
    assert "noise: +" in page
    assert "what model was trained on is not known" in page
    texts = {json.loads(path.read_text())["text"] for path in (folder / "eval" / "answers").rglob("*.json")}
    assert ANSWERS["right"] in texts
    assert "other sampling" in error(train(folder, *EVALUATE, "--out", "eval", "--temperature", "0.5"))
    _exports(folder, after["weights"])


def _exports(folder: Path, weights: str) -> None:
    import torch
    from huggingface_hub import ModelCard
    from peft import AutoPeftModelForCausalLM
    from transformers import AutoModelForCausalLM, AutoTokenizer

    plain = train(folder, "export", "tuned", "--into", "plain", "--evaluation", "eval", "--licence", "apache-2.0", "--json")
    assert plain.returncode == 0, plain.stderr
    merged = train(folder, "export", "tuned", "--into", "merged", "--merge", "--json")
    assert merged.returncode == 0, merged.stderr
    assert json.loads(merged.stdout)["sha256"] == weights
    (served,) = json.loads(plain.stdout)["served"]
    assert served["command"] == "vllm serve model --enable-lora --max-lora-rank 16 --lora-modules plain=plain"
    assert [way["model"] for way in json.loads(merged.stdout)["served"]] == ["merged", "merged"]

    ids = AutoTokenizer.from_pretrained(folder / "merged")("def get_inputs():", return_tensors="pt")["input_ids"]
    with torch.inference_mode(), contextlib.chdir(folder):  # the adapter names its model as the run was given it
        own = AutoModelForCausalLM.from_pretrained(folder / "tuned" / "model")(ids).logits
        assert torch.equal(AutoModelForCausalLM.from_pretrained(folder / "merged")(ids).logits, own)
        adapted = AutoPeftModelForCausalLM.from_pretrained("plain", dtype=torch.float32)(ids).logits
        torch.testing.assert_close(adapted, own, rtol=1e-4, atol=1e-4)
        base = AutoModelForCausalLM.from_pretrained("model")(ids).logits
    assert not torch.allclose(base, own, atol=1e-2)
    assert AutoTokenizer.from_pretrained(folder / "plain").chat_template

    card = ModelCard.load(folder / "plain" / "README.md")
    assert (card.data.library_name, card.data.license) == ("peft", "apache-2.0")
    digest = json.loads((folder / "data" / "manifest.json").read_text())["files"][0]["sha256"]
    for part in ("learning_rate | 0.01", digest, "Apache-2.0", "pass@1", "no GPU took part", served["command"]):
        assert part in card.text, part
    assert "It was not evaluated" in ModelCard.load(folder / "merged" / "README.md").text
    on_training = ["--data", "data", "--split", "train", "--device", "sim", "--out", "x", "--json"]
    exported = train(folder, "evaluate", "plain", *on_training)
    assert "which plain was trained on (plain)" in error(exported)
