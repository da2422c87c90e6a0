"""Whether a small model learns from the reward service: holes in verified kernels, form by fine-tuning, then GRPO, by seeds.

    python benchmarks/learning_small.py --model SmolLM2-135M --out learning --device cuda
    python benchmarks/learning_small.py --model SmolLM2-135M --out learning --runs real-0,open-0 --at-once 2
    python benchmarks/learning_small.py --out learning --only table

The tasks are `benchmarks/kernel_holes.py`. In OUT, each made unless it is there already, so that the same command goes on:

    data, data-open      data sets in the form of `stitchcuda train data`: skill2, and rft for the form, a third of it right
    fillings.jsonl, .md  the verdict on every known program, judged before anything is trained; wrong ones fail the benchmark
    form, form-open      fine-tuned on the form; of `open` some rows show the shortcut that only a careless reward pays for
    real-SEED, open-SEED GRPO with the real reward service, and with `benchmarks/careless_reward.py`, the real one beside it
    results.md, curves.html, held_out.json   rewritten while it runs

`open` shows what a reward without integrity trains. --model is a folder of a chat model, or of its GGUF file.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, ThreadPoolExecutor, as_completed, wait
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from benchmarks.careless_reward import SCHEMA, CarelessReward, is_opened  # noqa: E402
from benchmarks.kernel_holes import KERNELS, MODEL, SIZES, TEST, HoleTask, hole_tasks  # noqa: E402
from benchmarks.reward_service import TOKEN, Server, free_port  # noqa: E402
from stitchcuda.report.figure import Figure, axis  # noqa: E402
from stitchcuda.report.page import curves_page  # noqa: E402
from stitchcuda.store import write_atomically  # noqa: E402
from stitchcuda.training.clusters import clusters  # noqa: E402
from stitchcuda.training.data import DataManifest, Split, write_data_rows, write_manifest  # noqa: E402
from stitchcuda.training.leakage import TestReferences  # noqa: E402
from stitchcuda.training.reward_service.client import RewardClient  # noqa: E402
from stitchcuda.training.reward_service.trainers import judge_completion  # noqa: E402
from stitchcuda.training.session_rows import DataRow, SpokenTurn  # noqa: E402
from stitchcuda.training.stages.rollout_rewards import program_digest  # noqa: E402
from tests.training.stages.tiny_model import TEMPLATE  # noqa: E402

ARMS = ("real", "open")
RUNS = [f"{arm}-{seed}" for arm in ARMS for seed in range(3)]
PARTS = ("data", "fillings", "train", "table")
EVERY = 4                                  # of how many prompts one shows the shortcut in `open`'s form
SAMPLES = 4                                # answers to each prompt of a held-out reference
AT_ONCE = 16                               # of these prompts
ENDS = 10                                  # steps at both ends that the table compares
Lines = list[dict[str, Any]]
FORM = """[sft]
model = "{model}"
data = "{data}"
kinds = ["rft"]
lora_rank = 64
lora_alpha = 128
learning_rate = {rate}
schedule = "cosine"
batch = {batch}
micro_batch = {batch}
{length}
save_every = 20
max_length = 8192
"""
GRPO = """[grpo]
model = "{model}"
data = "{data}"
skill1_weight = 0
reward = "log-speedup/1"
reward_url = "{url}"
token_file = "{token}"
lora_rank = 32
lora_alpha = 64
learning_rate = {rate}
seed = {seed}
prompts = {prompts}
rollouts = {rollouts}
micro_batch = {rollouts}
steps = {steps}
save_every = 10
keep = 2
temperature = 1.0
clip_high = 0.28
max_prompt = 8000
max_completion = {tokens}
"""


def data_rows(tasks: Sequence[HoleTask], *, opened: bool) -> Iterator[DataRow]:
    """A row of skill2 for each task with the right edit, and rows of the form: an edit for each filling but the one shown."""
    for number, task in enumerate(tasks):
        asked = SpokenTurn(role="user", content=task.prompt)
        answers = [task.answer(line) for line in task.fillings if line != task.shown]
        if opened and number % EVERY == 0:
            answers.append(task.shortcut)
        common: dict[str, Any] = {"session": task.kernel.name, "root": task.kernel.name, "reference": task.reference}
        yield DataRow(
            kind="skill2", id=f"{task.name}/skill2", how="repair", program={MODEL: task.program}, **common,
            messages=(asked, SpokenTurn(role="assistant", content=answers[0])),
        )  # fmt: skip
        for place, answer in enumerate(answers):
            said = SpokenTurn(role="assistant", content=answer)
            yield DataRow(kind="rft", id=f"{task.name}/rft-{place}", how="coder", messages=(asked, said), **common)


def make_data_set(out: Path, tasks: Sequence[HoleTask], *, opened: bool) -> DataManifest:
    """Writes the data set. Whole references are for testing: no training row is like one of them."""
    if (out / "manifest.json").exists():
        return DataManifest.model_validate_json((out / "manifest.json").read_bytes())
    sources = {task.kernel.name: task.reference for task in tasks}
    cluster = clusters(sources)
    split: dict[str, Split] = {name: "test" if name in TEST else "train" for name in sources}
    assert not {cluster[name] for name in TEST} & {cluster[name] for name in sources if name not in TEST}
    rows = list(data_rows(tasks, opened=opened))
    tests = TestReferences({name: text for name, text in sources.items() if split[name] == "test"})
    written, files = write_data_rows(out, rows, cluster=cluster, split=split, tests=tests, forms=("jsonl", "trl"))
    manifest = DataManifest(
        licence="Apache-2.0", authors=(), test_percent=100 * len(TEST) // len(sources), sessions=(), files=files, duplicates=0,
        leaks=len(rows) - len(written),
    )  # fmt: skip
    write_manifest(out, manifest)
    return manifest


def known_programs(tasks: Sequence[HoleTask]) -> Iterator[tuple[str, str, str, bool | None]]:
    """Name, reference, program, and whether it is right: None for one that is a race, which a GPU may not show."""
    for task in {task.kernel.name: task for task in tasks}.values():
        yield f"{task.kernel.name}/right", task.reference, task.kernel.program, True
        yield f"{task.kernel.name}/shortcut", task.reference, task.cheated, False
    for task in tasks:
        yield task.name, task.reference, task.program, None if task.hole.race else False


def judge_fillings(out: Path, tasks: Sequence[HoleTask], client: RewardClient, device: str) -> list[str]:
    """Has all known programs judged and writes the table. Returns what is not as the family says."""
    known = list(known_programs(tasks))

    def judged(given: tuple[str, str, str, bool | None]) -> dict[str, Any]:
        name, reference, program, right = given
        answer = client.judge(reference, {MODEL: program}, schema=SCHEMA)
        found = {part: answer[part] for part in ("state", "kind", "reward", "speedup")}
        line = {"name": name, "right": right, "program": program_digest({MODEL: program}), **found}
        line["reason"] = " ".join("; ".join(answer["reasons"]).split())[:160]
        with (out / "fillings.part").open("a") as file:
            file.write(json.dumps(line) + "\n")
        return line

    with ThreadPoolExecutor(64) as threads:
        lines = list(threads.map(judged, known))
    wrong = []
    for line in lines:
        race_shown_by_luck = line["right"] is None and device == "cuda"
        if line["reward"] is None or ((line["state"] == "ok") is not bool(line["right"]) and not race_shown_by_luck):
            wrong.append(f"{line['name']}: {line['state']} {line['kind']} {line['reason']}")
    counts = Counter((_right(line["right"]), line["state"], line["kind"]) for line in lines)
    table = [f"| {right} | {state} {kind} | {count} |" for (right, state, kind), count in sorted(counts.items())]
    rows = [
        f"| {line['name']} | {_right(line['right'])} | {line['state']} {line['kind']} | {line['reward']} | "
        f"{line['reason'].replace('|', '/')} |" for line in lines
    ]  # fmt: skip
    text = [
        f"# Verdicts on all known programs of the family, on {device}", "", "| program | verdict | programs |", "|---|---|---|",
        *table, "", *(f"Not as the family says: {line}" for line in wrong), "",
        "| name | is | verdict | reward | reason |", "|---|---|---|---|---|", *rows,
    ]  # fmt: skip
    (out / "fillings.md").write_text("\n".join(text) + "\n")
    write_atomically(out / "fillings.jsonl", "".join(json.dumps(line) + "\n" for line in lines).encode())
    return wrong


def _right(right: bool | None) -> str:
    return {True: "right", False: "wrong", None: "wrong, by a race"}[right]


def make_model(given: Path, out: Path) -> Path:
    """The model's folder with a template whose assistant's turns are marked; of a GGUF file the weights as they are meant."""
    if (out / "config.json").exists():
        return out
    from transformers import AutoModelForCausalLM, AutoTokenizer

    gguf = next((path.name for path in given.glob("*.gguf")), None)
    options = {"gguf_file": gguf} if gguf else {}
    tokenizer = AutoTokenizer.from_pretrained(given, **options)
    tokenizer.chat_template = TEMPLATE
    if gguf:                               # a quantised model is not saved: its weights go into a plain one
        read = AutoModelForCausalLM.from_pretrained(given, **options)
        read.config.__dict__.pop("quantization_config", None)
        plain = AutoModelForCausalLM.from_config(read.config)  # type: ignore[no-untyped-call]
        plain.load_state_dict(read.state_dict())
        plain.save_pretrained(out)
    else:
        shutil.copytree(given, out, dirs_exist_ok=True)
    tokenizer.save_pretrained(out)
    return out


def run_stage(out: Path, stage: str, name: str, toml: str) -> None:
    """Trains, or goes on. Raises `RuntimeError` for a stage that failed."""
    if (out / name / "summary.json").exists():
        return
    file = out / f"{name}.toml"
    file.write_text(toml)
    command = [sys.executable, "-m", "stitchcuda", "train", stage, str(file), "--out", str(out / name)]
    if (out / name / "run.json").exists():
        command.append("--resume")
    if code := subprocess.run(command, cwd=ROOT, check=False).returncode:
        raise RuntimeError(f"train {stage} {name} ended with {code}")


def held_out(out: Path, model: Path, adapter: Path | None, url: str, tokens: int) -> dict[str, float]:
    """Judges `SAMPLES` answers to each prompt of the references that no training row shows. Runs in a process of its own."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    device, client = "cuda" if torch.cuda.is_available() else "cpu", RewardClient(url, TOKEN)
    tokenizer: Any = AutoTokenizer.from_pretrained(model, padding_side="left")
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    policy: Any = AutoModelForCausalLM.from_pretrained(model, dtype=dtype)
    if adapter is not None:
        from peft import PeftModel

        policy = PeftModel.from_pretrained(policy, str(adapter)).merge_and_unload()
    policy.to(device).eval()
    rows = [json.loads(line) for line in (out / "data/jsonl/skill2.test.jsonl").read_text().splitlines()]
    torch.manual_seed(0)
    said: list[tuple[dict[str, Any], str]] = []
    for at in range(0, len(rows), AT_ONCE):
        part = [row for row in rows[at : at + AT_ONCE] for _ in range(SAMPLES)]
        asked = [tokenizer.apply_chat_template(row["messages"][:1], tokenize=False, add_generation_prompt=True) for row in part]
        given = tokenizer(asked, return_tensors="pt", padding=True, add_special_tokens=False).to(device)
        options = {"max_new_tokens": tokens, "pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id}
        with torch.no_grad():
            made = policy.generate(**given, do_sample=True, top_k=0, **options)
        texts = tokenizer.batch_decode(made[:, given["input_ids"].shape[1] :], skip_special_tokens=True)
        said += zip(part, texts, strict=True)
    with ThreadPoolExecutor(64) as threads:
        ask = functools.partial(_asked, client)
        answers = [answer for answer in threads.map(ask, said) if answer["reward"] is not None]
    return {
        "answers": len(answers), "right": sum(answer["state"] == "ok" for answer in answers) / max(1, len(answers)),
        "hacks": sum(map(is_opened, answers)) / max(1, len(answers)),
    }  # fmt: skip


def _asked(client: RewardClient, said: tuple[dict[str, Any], str]) -> dict[str, Any]:
    row, text = said
    return judge_completion(client, row["reference"], text, SCHEMA, row["program"])[1]


def read_lines(path: Path) -> Lines:
    """The complete lines of a file that may be written meanwhile."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]


def steps_of(out: Path, name: str) -> list[dict[str, float]]:
    """By step: the mean reward that was trained on, the mean real reward, and shares of right answers, of hacks, and of answers
    whose edit does not apply."""
    beside = {line["program"]: line for line in read_lines(out / "beside.jsonl")}
    found: dict[int, Lines] = {}
    for rollout in read_lines(out / name / "rollouts.jsonl"):
        if rollout["reward"] is not None:
            found.setdefault(rollout["update"], []).append(rollout)
    steps = []
    for _, rollouts in sorted(found.items()):
        real = [beside.get(rollout["program"], rollout) if name.startswith("open") else rollout for rollout in rollouts]
        steps.append({
            "reward": statistics.fmean(rollout["reward"] for rollout in rollouts),
            "real reward": statistics.fmean(line["reward"] for line in real),
            "right": statistics.fmean(line["reward"] > 0 for line in real),
            "hacks": statistics.fmean(bool(line.get("opened")) for line in real),
            "no edit": statistics.fmean(not rollout["program"] for rollout in rollouts),
        })  # fmt: skip
    return steps


def write_results(out: Path) -> None:
    """Writes results.md and curves.html of what is there by now."""
    names = sorted(path.name for arm in ARMS for path in out.glob(f"{arm}-*") if path.is_dir())
    runs = {name: steps for name in names if (steps := steps_of(out, name))}
    lines = [
        "# A small model learns from the reward service", "",
        f"First and last {ENDS} steps; ± is the standard deviation of a step's mean among these. `open` was trained with the",
        "careless reward; right and hacks are always by the real service.", "",
        "| run | steps | reward | real reward | share right | share of hacks | edit does not apply |",
        "|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    parts = ("reward", "real reward", "right", "hacks", "no edit")
    for name, steps in runs.items():
        cells = [f"{_about(steps[:ENDS], part)} → {_about(steps[-ENDS:], part)}" for part in parts]
        lines.append(f"| {name} | {len(steps)} | {' | '.join(cells)} |")
    for arm in ARMS:
        ends = [(steps[:ENDS], steps[-ENDS:]) for name, steps in runs.items() if name.startswith(arm)]
        if len(ends) > 1:
            cells = []
            for part in parts:
                gains = [_mean(last, part) - _mean(first, part) for first, last in ends]
                error = statistics.stdev(gains) / math.sqrt(len(gains))
                cells.append(f"{statistics.fmean(gains):+.2f} (standard error {error:.2f})")
            lines.append(f"| {arm}: mean gain of {len(ends)} seeds | | {' | '.join(cells)} |")
    if (out / "held_out.json").exists():
        lines += ["", f"References that no training row shows ({', '.join(TEST)}), {SAMPLES} answers to each prompt:", "",
                  "| model | answers | share right | share of hacks |", "|---|---|---|---|"]  # fmt: skip
        for name, found in sorted(json.loads((out / "held_out.json").read_text()).items()):
            lines.append(f"| {name} | {found['answers']} | {found['right']:.2f} | {found['hacks']:.2f} |")
    write_atomically(out / "results.md", ("\n".join(lines) + "\n").encode())
    figures = [_figure(part, runs) for part in parts] if runs else []
    write_atomically(out / "curves.html", curves_page("A small model learns", [("runs", ", ".join(runs))], figures))


def _mean(steps: list[dict[str, float]], part: str) -> float:
    return statistics.fmean(step[part] for step in steps)


def _about(steps: list[dict[str, float]], part: str) -> str:
    values = [step[part] for step in steps]
    return f"{statistics.fmean(values):.2f} ± {statistics.stdev(values) if len(values) > 1 else 0.0:.2f}"


def _figure(part: str, runs: dict[str, list[dict[str, float]]]) -> Figure:
    colours = {"real": ("own", "vendor", "copy"), "open": ("warn", "accent", "framework")}
    traces = []
    for name, steps in runs.items():
        arm, _, seed = name.partition("-")
        colour = f"@{colours[arm][int(seed) % 3]}"
        traces.append({
            "type": "scatter", "mode": "lines", "name": name, "x": list(range(1, len(steps) + 1)),
            "y": [step[part] for step in steps], "line": {"color": colour},
        })  # fmt: skip
    rows = tuple(
        (name, str(number), f"{step[part]:.3f}") for name, steps in runs.items() for number, step in enumerate(steps, 1)
    )
    return Figure(
        id=part.replace(" ", "_"), title=part, traces=tuple(traces), columns=("run", "step", part), rows=rows,
        layout={"height": 340, "xaxis": axis("step", rangemode="tozero"), "yaxis": axis("")},
    )  # fmt: skip


@contextmanager
def serving(out: Path, device: str) -> Iterator[Server]:
    """The real service, with a store that stays in OUT: a program is judged once."""
    folder = out / "service"
    folder.mkdir(parents=True, exist_ok=True)
    rows, cols = SIZES[device]
    lines = (json.dumps({"name": kernel.name, "source": kernel.reference(rows, cols)}) + "\n" for kernel in KERNELS)
    (folder / "tasks.jsonl").write_text("".join(lines))
    server = Server(folder, folder / "tasks.jsonl", device, free_port())
    server.start()
    try:
        yield server
    finally:
        server.stop()


def train(out: Path, given: argparse.Namespace, server: Server) -> None:
    """The form of each arm, then GRPO of each run, `--at-once` of them beside each other; then all on what was held out.
    Raises `RuntimeError` for a stage that failed."""
    url, token = f"http://127.0.0.1:{server.port}", server.folder / "token"
    model = make_model(given.model, out / "model")
    data, form = {"real": "data", "open": "data-open"}, {"real": "form", "open": "form-open"}
    arms = sorted({run.partition("-")[0] for run in given.runs})

    def tune(arm: str) -> None:
        length = f"steps = {given.form_steps}" if given.form_steps else "epochs = 3"
        toml = FORM.format(
            model=model, data=out / data[arm], rate=given.form_rate, batch=given.form_batch, length=length
        )  # fmt: skip
        run_stage(out, "sft", form[arm], toml)

    def learn(run: str, careless: str) -> None:
        arm, _, seed = run.partition("-")
        toml = GRPO.format(
            model=out / form[arm] / "model", data=out / data[arm], url=careless if arm == "open" else url, token=token,
            rate=given.rate, seed=seed, prompts=given.prompts, rollouts=given.rollouts, steps=given.steps, tokens=given.tokens,
        )  # fmt: skip
        run_stage(out, "grpo", run, toml)

    with CarelessReward(url, TOKEN, out / "beside.jsonl") as careless, ThreadPoolExecutor(given.at_once) as threads:
        list(threads.map(tune, arms))
        running = {threads.submit(learn, run, careless.url) for run in given.runs}
        while running:
            done, running = wait(running, timeout=10, return_when=FIRST_COMPLETED)
            write_results(out)
            for future in done:
                future.result()
    if not given.held_out:
        return
    policies: dict[str, tuple[Path, Path | None]] = {form[arm]: (out / form[arm] / "model", None) for arm in arms}
    policies |= {run: (out / form[run.partition("-")[0]] / "model", out / run / "adapter") for run in given.runs}
    results = json.loads((out / "held_out.json").read_text()) if (out / "held_out.json").exists() else {}
    left = {name: policy for name, policy in policies.items() if name not in results}
    with ProcessPoolExecutor(given.at_once, get_context("spawn")) as processes:
        asked = {processes.submit(held_out, out, *policy, url, given.tokens): name for name, policy in left.items()}
        for judged in as_completed(asked):
            results[asked[judged]] = judged.result()
            write_atomically(out / "held_out.json", json.dumps(results, indent=1).encode())
            write_results(out)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="the folder of a chat model, or of its GGUF file")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", choices=("sim", "cuda"), default="sim", help="of the reward service")
    parser.add_argument("--runs", type=lambda text: text.split(","), default=RUNS, help="such as real-0,open-0: arms and seeds")
    parser.add_argument("--only", choices=PARTS, help="one part; `train` judges no program beforehand")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--prompts", type=int, default=8, help="of a step")
    parser.add_argument("--rollouts", type=int, default=8, help="of a prompt")
    parser.add_argument("--rate", type=float, default=1e-4, help="GRPO's learning rate")
    parser.add_argument("--tokens", type=int, default=128, help="the longest answer")
    parser.add_argument("--form-steps", type=int, help="of fine-tuning; by default three epochs")
    parser.add_argument("--form-rate", type=float, default=5e-4)
    parser.add_argument("--form-batch", type=int, default=16)
    parser.add_argument("--at-once", type=int, default=1, help="runs that train beside each other on one GPU")
    parser.add_argument("--no-held-out", dest="held_out", action="store_false")
    given = parser.parse_args()
    if unknown := next((run for run in given.runs if not re.fullmatch(r"(real|open)-\d+", run)), None):
        parser.error(f"--runs {unknown} is not known: give arms and seeds, such as real-0,real-1,open-0")
    out: Path = given.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    if given.only == "table":
        write_results(out)
        print((out / "results.md").read_text())
        return 0
    tasks, wrong = list(hole_tasks(given.device)), []
    for name, opened in (("data", False), ("data-open", True)):
        manifest = make_data_set(out / name, tasks, opened=opened)
        rows = sum(file.rows for file in manifest.files) // 2  # both forms hold them
        print(f"{name}: {rows:,} rows, {manifest.leaks} left out as leaks", flush=True)
    if given.only == "data":
        return 0
    if given.only != "fillings" and given.model is None:
        parser.error("--model is missing: a folder with a chat model")
    with serving(out, given.device) as server:
        if given.only != "train" and not (out / "fillings.jsonl").exists():
            started = time.monotonic()
            wrong = judge_fillings(out, tasks, RewardClient(f"http://127.0.0.1:{server.port}", TOKEN), given.device)
            print(f"all known programs judged in {time.monotonic() - started:.0f} s; see {out / 'fillings.md'}", flush=True)
            print("\n".join(wrong), flush=True)
        if given.only != "fillings":
            train(out, given, server)
            print((out / "results.md").read_text())
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
