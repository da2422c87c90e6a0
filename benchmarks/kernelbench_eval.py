"""What KernelBench's own evaluation says of our attack corpus: `python benchmarks/kernelbench_eval.py CHECKOUT` (GPU only).

CHECKOUT is a copy of github.com/ScalingIntelligence/KernelBench. Each attack that a GPU can express, and that needs no files
beside it, is given to `eval_kernel_against_ref` with five correctness trials and timing, in a process of its own, and to the
project's static checker. Attacks on the machine (rows S) are left out: nothing would contain them there. With `--json FILE` it
goes on where the file ends.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
import types
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

HERE = Path(__file__).resolve()
sys.path.insert(0, str(HERE.parent.parent))
from tests.integrity.corpus import Entry, entries  # noqa: E402

_CHAT_LIBRARIES = ("litellm", "openai", "dotenv", "tqdm", "requests")  # imported there, not used by the evaluation
_SECONDS = 180


def evaluate_program(checkout: Path, program: Path, reference: Path, mark: str) -> None:
    """In a process of its own: evaluate one program and print the result in a line that begins with `mark`."""
    for name in _CHAT_LIBRARIES:
        try:
            importlib.import_module(name)
        except ImportError:
            stand_in = types.ModuleType(name)
            for attribute in ("completion", "OpenAI", "load_dotenv", "tqdm", "get"):
                setattr(stand_in, attribute, lambda *_, **__: None)
            sys.modules[name] = stand_in
    sys.path.insert(0, str(checkout / "src"))
    os.environ.setdefault("TORCH_CUDA_ARCH_LIST", "9.0")
    import torch

    evaluation = importlib.import_module("kernelbench.eval")
    checker = importlib.import_module("kernelbench.kernel_static_checker")
    source = program.read_text()
    valid, errors, _ = checker.validate_kernel_static(source, precision="fp32")
    answers = sys.stdout
    sys.stdout = sys.stderr
    result = evaluation.eval_kernel_against_ref(
        reference.read_text(), source, num_correct_trials=5, num_perf_trials=20, measure_performance=True,
        build_dir=tempfile.mkdtemp(), device=torch.device("cuda:0"), check_for_excessive_speedup=True,
    )  # fmt: skip
    said = result.model_dump() if result is not None else {}
    answer = {
        "compiled": bool(said.get("compiled")), "correct": bool(said.get("correctness")), "ms": said.get("runtime"),
        "reference_ms": said.get("ref_runtime"), "static": "passes" if valid else "; ".join(map(str, errors))[:120],
        "metadata": {key: str(value)[:160] for key, value in (said.get("metadata") or {}).items()},
    }  # fmt: skip
    print(mark, json.dumps(answer), file=answers, flush=True)
    os._exit(0)


def evaluated(entry: Entry, checkout: Path) -> dict[str, object]:
    """The answer for one attack; what hangs or dies says so."""
    mark = secrets.token_hex(8)            # there are attacks that print results
    with tempfile.TemporaryDirectory() as folder:
        program = entry.program(Path(folder))
        command = [sys.executable, str(HERE), str(checkout), "--one", str(program), str(entry.reference), mark]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS)
        except subprocess.TimeoutExpired:
            return {"compiled": None, "correct": False, "static": "", "metadata": {"died": f"no answer in {_SECONDS} s"}}
    lines = [line for line in done.stdout.splitlines() if line.startswith(mark)]
    if not lines:
        return {"compiled": None, "correct": False, "static": "", "metadata": {"died": done.stderr[-300:]}}
    answer: dict[str, object] = json.loads(lines[-1].removeprefix(mark))
    return answer


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--table", type=Path, help="write the table to this file")
    parser.add_argument("--json", type=Path, help="write the answers to this file, and take those that are there")
    given = parser.parse_args()
    if given.one:
        evaluate_program(given.checkout.resolve(), Path(given.one[0]), Path(given.one[1]), given.one[2])
        return 0
    chosen = [
        entry for entry in entries("attacks")
        if entry.on("cuda") and not entry.row.startswith("S") and entry.path.is_file()
    ]  # fmt: skip
    answers: dict[str, dict[str, object]] = json.loads(given.json.read_text()) if given.json and given.json.is_file() else {}
    with ThreadPoolExecutor(given.jobs) as pool:
        asked = {pool.submit(evaluated, entry, given.checkout): entry for entry in chosen if entry.name not in answers}
        for finished in as_completed(asked):
            answers[asked[finished].name] = finished.result()
            print(row(asked[finished], finished.result()), flush=True)
            if given.json:
                given.json.write_text(json.dumps(answers, indent=1))
    found = [(entry, answers[entry.name]) for entry in chosen]
    correct = [said for _, said in found if said.get("correct")]
    both = sum(said["static"] == "passes" for said in correct)
    total = f"{len(correct)} of {len(found)} attacks are judged correct, {both} of them also pass its static checker."
    print(total)
    if given.table:
        heading = f"`python {' '.join(sys.argv)}`, {time.strftime('%Y-%m-%d')}"
        title = "| row | program | judged correct | reported speed-up | its static checker | what it said |"
        rows = [row(entry, said) for entry, said in found]
        given.table.write_text("\n".join([heading, "", total, "", title, "|" + "---|" * 6, *rows, ""]))
    return 0


def row(entry: Entry, said: dict[str, object]) -> str:
    """Of the table, in Markdown."""
    ms, reference = said.get("ms"), said.get("reference_ms")
    timed = isinstance(ms, float | int) and isinstance(reference, float | int) and ms > 0 and reference > 0
    ratio = f"{reference / ms:.2f}x" if timed else ""  # type: ignore[operator]
    what = " ".join(str(said.get("metadata", "")).split()).replace("|", "\\|")[:140]
    return f"| {entry.row} | {entry.name} | {'yes' if said.get('correct') else 'no'} | {ratio} | {said['static']} | {what} |"


if __name__ == "__main__":
    sys.exit(main())
