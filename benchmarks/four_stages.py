"""CUDA Agent's four stages in order, each from the last one's checkpoint, with and without the warm-up; curves side by side.

    python benchmarks/four_stages.py --model MODEL --tasks tasks.jsonl --device auto --steps 100 --out runs --to table.md
    python benchmarks/four_stages.py --model SmolLM2-135M --family --steps 8 --out runs   # small kernels, for a small model
    python benchmarks/four_stages.py --tiny --steps 2 --out runs       # a random model on the simulator: whether it all runs

Each stage is the command that a person runs, and both arms run beside each other. With `--family` the tasks are those of
`benchmarks/kernel_holes.py`, and the model is first tuned on the form of answers and of calls of tools, a third of them right:
without that a small model writes no program at all. Both arms first collect episodes (PPO that trains the critic alone, so the
policy stays what it is): fine-tuning and the value pretraining learn from them. Without an accepted episode fine-tuning is left
out, and the table says so. OUT/curves.html has importance ratios and rewards of both arms. Exits 1 where a stage fails.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.reward_service import Server, free_port  # noqa: E402
from stitchcuda.report.figure import Figure, axis  # noqa: E402
from stitchcuda.report.page import curves_page  # noqa: E402

ARMS = {"with warm-up": True, "without": False}
CURVES = (
    ("reward", "reward", "mean reward of a step"), ("ratio", "ratio/max", "largest importance ratio of an update"),
    ("clipped", "ratio/clipped", "share of tokens outside the clipping"), ("moved", "kl_of_update", "divergence of an update"),
    ("explained", "explained_variance", "share of the rewards' variance that the critic explains"),
)  # fmt: skip
_COLOURS = {"with warm-up": "@own", "without": "@warn"}


@dataclass(frozen=True)
class Ran:
    """One stage of an arm. `note`: why it was left out."""

    arm: str
    stage: str
    seconds: float
    log: list[dict[str, Any]]
    note: str = ""


class Arm:
    """Stages one after the other in OUT/ARM. `service`: keys of the reward service; `given`: the command line."""

    def __init__(self, name: str, out: Path, model: Path, service: dict[str, Any], given: argparse.Namespace) -> None:
        self.name, self.folder, self.model, self.service, self.given = name, out / name.replace(" ", "-"), model, service, given
        self.ran: list[Ran] = []
        self.folder.mkdir(parents=True)

    def run(self, *, warm_up: bool) -> list[Ran]:
        steps, rounds = self.given.steps, {"prompts": self.given.prompts, "updates": 2, "tasks": self.given.tasks}
        learns = {"learning_rate": self.given.learning_rate, "lora_rank": self.given.lora_rank}
        episode = {"turns": self.given.turns, "checks": 1, "target": self.given.target, "max_prompt": self.given.max_prompt,
                   "max_completion": self.given.max_episode}  # fmt: skip
        critic = {"critic_learning_rate": self.given.critic_learning_rate}
        if warm_up:
            self._stage("warm-up", "ppo", learns | rounds | critic | self.service | {
                "steps": steps, "skill2_weight": 0, "critic_warmup": 1, "max_prompt": self.given.max_prompt,
                "max_completion": self.given.max_completion,
            })  # fmt: skip
        self._stage("episodes", "agentic", learns | rounds | critic | episode | self.service | {
            "steps": steps, "critic_warmup": steps,
        })  # fmt: skip
        episodes = [str(self.folder / "episodes")]
        rows = {"rollouts": episodes, "batch": self.given.prompts, "max_length": self.given.max_prompt + self.given.max_episode}
        tokens = _lines(self.folder / "episodes" / "tokens.jsonl")
        if any(line["reward"] > 0 for line in tokens):
            self._stage("fine-tuning", "sft", learns | rows | {"steps": steps, "least_outcome": 1e-9})
        else:
            self.ran.append(Ran(self.name, "fine-tuning", 0.0, [], f"left out: none of {len(tokens)} episodes was accepted"))
        self._stage("value", "value", rows | {
            "steps": steps, "learning_rate": self.given.critic_learning_rate, "reward": self.service["reward"],
        })  # fmt: skip
        self._stage("agentic", "agentic", learns | rounds | critic | episode | self.service | {
            "steps": steps, "critic": str(self.folder / "value" / "critic"),
        })  # fmt: skip
        return self.ran

    def _stage(self, name: str, table: str, keys: Mapping[str, Any]) -> None:
        begin, config, out = time.monotonic(), self.folder / f"{name}.toml", self.folder / name
        filled = {"model": str(self.model), "micro_batch": self.given.micro_batch, "seed": self.given.seed, **keys}
        config.write_text(f"[{table}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in filled.items()))
        command = ["ppo", "--agentic"] if table == "agentic" else [table]
        subprocess.run(
            [sys.executable, "-m", "stitchcuda", "train", *command, str(config), "--out", str(out)],
            env=os.environ | {"PYTHONPATH": str(ROOT)}, check=True,
        )  # fmt: skip
        self.ran.append(Ran(self.name, name, time.monotonic() - begin, _lines(out / "log.jsonl")))
        if (out / "model").is_dir() and name != "episodes":
            self.model = out / "model"


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(text) for text in path.read_text().splitlines()]


def table(ran: Sequence[Ran]) -> list[str]:
    lines = ["| arm | stage | updates | reward, first and last third | largest ratio | outside the clipping | explained | s |",
             "|---|---|---|---|---|---|---|---|"]  # fmt: skip
    for stage in ran:
        if stage.note:
            lines.append(f"| {stage.arm} | {stage.stage} | {stage.note} | | | | | |")
            continue
        rewards = _series(stage, "reward")[1]
        third = max(1, len(rewards) // 3)
        reward = f"{statistics.fmean(rewards[:third]):.3f}, {statistics.fmean(rewards[-third:]):.3f}" if rewards else "–"
        cells = [_cell(stage, "ratio/max", max), _cell(stage, "ratio/clipped", statistics.fmean),
                 _cell(stage, "explained_variance", lambda values: values[-1])]  # fmt: skip
        lines.append(
            f"| {stage.arm} | {stage.stage} | {len(stage.log)} | {reward} | {' | '.join(cells)} | {stage.seconds:.0f} |"
        )
    return lines


def _series(stage: Ran, name: str) -> tuple[list[int], list[float]]:
    found = [(line["update"], line[name]) for line in stage.log if name in line]
    return [at for at, _ in found], [value for _, value in found]


def _cell(stage: Ran, name: str, reduce: Callable[[list[float]], float]) -> str:
    values = _series(stage, name)[1]
    return f"{reduce(values):.3f}" if values else "–"


def figures(ran: Sequence[Ran]) -> list[Figure]:
    """One figure for each curve of a stage, both arms in it."""
    found = []
    for stage in dict.fromkeys(part.stage for part in ran):
        for id, name, title in CURVES:
            drawn = [(part, *_series(part, name)) for part in ran if part.stage == stage and _series(part, name)[0]]
            if not drawn:
                continue
            found.append(Figure(
                id=f"{id}-{stage}", title=f"{stage}: {title}", columns=("arm", "update", name),
                says="At the end: " + ", ".join(f"{part.arm} {values[-1]:.4g}" for part, _, values in drawn) + ".",
                traces=tuple(
                    {"type": "scatter", "mode": "lines+markers", "name": part.arm, "x": at, "y": values,
                     "line": {"color": _COLOURS[part.arm]}, "marker": {"size": 4}} for part, at, values in drawn
                ),
                layout={"height": 320, "xaxis": axis("update of the weights", rangemode="tozero"), "yaxis": axis("")},
                rows=tuple(
                    (part.arm, str(x), f"{y:.4g}") for part, at, values in drawn for x, y in zip(at, values, strict=True)
                ),
            ))  # fmt: skip
    return found


def make_tiny(given: argparse.Namespace) -> None:
    """Fills in a random model whose tokens are whole programs and calls of tools, tuned on them, and one task."""
    from stitchcuda.training.openenv.episode import task_prompt
    from stitchcuda.training.session_rows import asked_to_write
    from tests.training.stages.data_folder import data_folder, row
    from tests.training.stages.test_ppo_end_to_end import CALLS
    from tests.training.stages.test_stages_end_to_end import ANSWERS
    from tests.training.stages.tiny_model import qwen_template, tiny_model
    from tests.verify import programs

    base: Path = given.out / "tiny"
    asked = asked_to_write(programs.REFERENCE)[0].content
    prompt = task_prompt(programs.REFERENCE, "sim", given.turns, 1)
    tiny_model(base / "model", [*ANSWERS.values(), *CALLS.values(), asked, prompt], template=qwen_template())
    talks = [(asked, ANSWERS), (prompt, CALLS)]
    data_folder(base / "data", [
        row("rft", f"{at}{name}", question, text, programs.REFERENCE)
        for at, (question, answers) in enumerate(talks) for name, text in answers.items()
    ])  # fmt: skip
    (base / "gate.py").write_text(programs.REFERENCE)
    (base / "sft.toml").write_text(
        '[sft]\nmodel = "model"\ndata = "data"\nlora_rank = 0\nlearning_rate = 0.003\nbatch = 8\nmicro_batch = 8\nsteps = 24\n'
        "max_length = 8192\n"
    )
    command = [sys.executable, "-m", "stitchcuda", "train", "sft", "sft.toml", "--out", "tuned"]
    subprocess.run(command, cwd=base, env=os.environ | {"PYTHONPATH": str(ROOT)}, check=True)
    given.model, given.tasks = base / "tuned" / "model", str((base / "gate.py").resolve())


def make_family(given: argparse.Namespace) -> None:
    """Tunes the model on whole programs of the family, in an answer and in calls of tools, and fills in it and the tasks."""
    import shutil

    from benchmarks.kernel_holes import KERNELS, MODEL, TEST, hole_tasks
    from stitchcuda.training.openenv.episode import task_prompt
    from stitchcuda.training.session_rows import asked_to_write
    from tests.training.stages.data_folder import data_folder, row
    from tests.training.stages.tiny_model import qwen_template

    base: Path = given.out / "family"
    shutil.copytree(given.model, base / "model")
    settings = json.loads((base / "model" / "tokenizer_config.json").read_text())
    settings.pop("chat_template", None)
    (base / "model" / "tokenizer_config.json").write_text(json.dumps(settings))
    (base / "model" / "chat_template.jinja").write_text(qwen_template())
    kernels = [kernel for kernel in KERNELS if kernel.name not in TEST]
    wrong = {kernel.name: list[str]() for kernel in kernels}
    references = {}
    for task in hole_tasks("cuda" if given.device == "cuda" else "sim"):
        references[task.kernel.name] = task.reference
        if task.kernel.name in wrong:
            wrong[task.kernel.name].append(task.program)
    rows = []
    for kernel in kernels:
        reference, found = references[kernel.name], wrong[kernel.name]
        asked = asked_to_write(reference)[0].content, task_prompt(reference, given.target, given.turns, 1)
        for number, program in enumerate([*found, *[kernel.program] * (len(found) // 2)]):
            calls = [{"name": "write", "arguments": {"path": MODEL, "text": program}}, {"name": "submit", "arguments": {}}]
            called = "\n".join(f"<tool_call>\n{json.dumps(call)}\n</tool_call>" for call in calls)
            for kind, question, text in zip(("answer", "calls"), asked, (f"```{MODEL}\n{program}```", called), strict=True):
                rows.append(row("rft", f"{kernel.name}-{kind}-{number}", question, text, reference))
    data_folder(base / "data", rows)
    (base / "sft.toml").write_text(
        f'[sft]\nmodel = "model"\ndata = "data"\nlora_rank = 64\nlora_alpha = 128\nlearning_rate = {given.form_rate}\n'
        f'schedule = "cosine"\nbatch = 16\nmicro_batch = {given.form_micro_batch}\nsteps = {given.form_steps}\n'
        "max_length = 4096\n"
    )
    command = [sys.executable, "-m", "stitchcuda", "train", "sft", "sft.toml", "--out", "tuned"]
    subprocess.run(command, cwd=base, env=os.environ | {"PYTHONPATH": str(ROOT)}, check=True)
    tasks = base / "tasks.jsonl"
    tasks.write_text("".join(json.dumps({"name": kernel.name, "source": references[kernel.name]}) + "\n" for kernel in kernels))
    given.model, given.tasks = base / "tuned" / "model", str(tasks)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", type=Path, help="a small instruction-tuned model's folder")
    parser.add_argument("--tasks", help="a .jsonl file, a folder of references, or one reference")
    parser.add_argument("--tiny", action="store_true", help="a random model and one task, made here")
    parser.add_argument("--family", action="store_true", help="small kernels as tasks; the model is tuned on their form first")
    parser.add_argument("--form-steps", type=int, default=120, help="of that tuning")
    parser.add_argument("--form-rate", type=float, default=5e-4)
    parser.add_argument("--form-micro-batch", type=int, default=16)
    parser.add_argument("--device", default="sim", help="of the reward service")
    parser.add_argument("--target", default="sim", choices=("sim", "cuda"), help="what episodes compile for")
    parser.add_argument("--out", type=Path, required=True, help="a new folder")
    parser.add_argument("--steps", type=int, default=20, help="of each stage")
    parser.add_argument("--prompts", type=int, default=8, help="of a step")
    parser.add_argument("--micro-batch", type=int, default=2)
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--max-prompt", type=int, default=8000)
    parser.add_argument("--max-completion", type=int, default=4096)
    parser.add_argument("--max-episode", type=int, default=16384)
    parser.add_argument("--lora-rank", type=int, default=16)
    parser.add_argument("--learning-rate", type=float, default=1e-4)
    parser.add_argument("--critic-learning-rate", type=float, default=1e-5)
    parser.add_argument("--reward", default="log-speedup/1")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--to", type=Path, help="file for the table")
    given = parser.parse_args()
    if not given.tiny and not (given.model and (given.tasks or given.family)):
        parser.error("give --model and --tasks, --model and --family, or --tiny")
    given.out = given.out.resolve()
    given.out.mkdir(parents=True)
    if given.tiny:
        given.max_completion, given.max_episode = 3, 500
        make_tiny(given)
    if given.family:
        make_family(given)
    given.tasks = str(Path(given.tasks).resolve())
    server = Server(given.out, Path(given.tasks), given.device, free_port())
    server.start()
    service = {"reward": given.reward, "reward_url": f"http://127.0.0.1:{server.port}", "token_file": str(given.out / "token")}
    try:
        with ThreadPoolExecutor(len(ARMS)) as threads:
            arms = [Arm(name, given.out, given.model.resolve(), service, given) for name in ARMS]
            ran = sum(threads.map(lambda arm: arm.run(warm_up=ARMS[arm.name]), arms), list[Ran]())
    finally:
        server.stop()
    facts = [("model", str(given.model.name)), ("steps of a stage", str(given.steps)), ("reward", given.reward)]
    (given.out / "curves.html").write_bytes(curves_page("Four stages, with and without the warm-up", facts, figures(ran)))
    head = ["# CUDA Agent's four stages, with and without the warm-up", "",
            f"`benchmarks/four_stages.py`, {date.today()}, {given.steps} steps a stage of {given.prompts} prompts, reward "
            f"{given.reward}, device {given.device}{', a random model' if given.tiny else ''}.", ""]  # fmt: skip
    text = "\n".join([*head, *table(ran)]) + "\n"
    print(text)
    if given.to:
        given.to.write_text(text)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.CalledProcessError as error:
        print(f"a stage failed with exit code {error.returncode}: {' '.join(map(str, error.cmd))}", file=sys.stderr)
        sys.exit(1)
