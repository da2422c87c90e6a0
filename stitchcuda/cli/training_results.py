"""`stitchcuda train evaluate` and `stitchcuda train export`: compare checkpoints before and after training, and write a run's
model as a folder that others can load and serve.

`--json` prints one JSON object on stdout; lines of progress go to stderr. Without the extra `training` they say how to get it.

Where to look next: `training/evaluation/evaluate.py`, `training/export/exported.py` (what they call), `cli/training_stages.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from stitchcuda.cli.console import FORM, AsJson, Debug, report_errors, tell
from stitchcuda.cli.options import Device, GpuMemory, PolicyOption, PrecisionOption, first_gpus
from stitchcuda.cli.training_stages import require_packages
from stitchcuda.errors import BadInput

if TYPE_CHECKING:
    from stitchcuda.training.rewards import Skill

app = typer.Typer(**FORM)
Base = Annotated[
    str | None, typer.Option("--base", metavar="MODEL", help="The model below an adapter, in place of the one it names.")
]


@app.command()
@report_errors(interrupted="interrupted: answers and verdicts so far are kept, the same command goes on")
def evaluate(
    checkpoints: Annotated[
        list[str],
        typer.Argument(metavar="CHECKPOINT...", help="Folders of runs, models, adapters, or hub names. First: before."),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The same command goes on with what is there.")],
    data: Annotated[Path | None, typer.Option("--data", metavar="DIR", help="A data set of `train data`.")] = None,
    split: Annotated[str, typer.Option("--split", help="Of the data set: test or train.")] = "test",
    skill: Annotated[
        list[int] | None, typer.Option("--skill", min=1, max=2, help="Of the data set; again for both. Default: 1.")
    ] = None,
    tasks: Annotated[
        Path | None, typer.Option("--tasks", metavar="PATH", help="Or a .jsonl file, a folder of references, or one.")
    ] = None,
    base: Base = None,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Answers of each checkpoint to each problem.")] = 4,
    temperature: Annotated[float, typer.Option("--temperature", min=0, help="0: the likeliest token, with --seeds 1.")] = 1.0,
    top_p: Annotated[float, typer.Option("--top-p", min=0.001, max=1)] = 1.0,
    top_k: Annotated[int, typer.Option("--top-k", min=0, help="0: no limit.")] = 0,
    max_completion: Annotated[int, typer.Option("--max-completion", min=1, help="Most tokens of an answer.")] = 4096,
    batch: Annotated[int, typer.Option("--batch", min=1, help="Answers that are written at once.")] = 16,
    judge: Annotated[str | None, typer.Option("--judge", help="The rubric's chat model, such as openai:NAME.")] = None,
    base_url: Annotated[str | None, typer.Option("--base-url", help="The judge's OpenAI-compatible server.")] = None,
    device: Device = "auto",
    gpus: Annotated[int | None, typer.Option("--gpus", min=1, help="Judge on so many GPUs; by default one.")] = None,
    jobs: Annotated[int | None, typer.Option("--jobs", min=1, help="Programs at once; by default three to a GPU.")] = None,
    baselines: Annotated[
        bool, typer.Option("--baselines/--no-baselines", help="Also time a CUDA graph and torch.compile, on a GPU.")
    ] = False,
    gpu_memory_gb: GpuMemory = None,
    policy: PolicyOption = "stitched",
    precision: PrecisionOption = "reference",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and write nothing.")] = False,
    as_json: AsJson = False, debug: Debug = False,
) -> int:  # fmt: skip
    """Compares checkpoints on problems that they were not trained on. Exit code 0: every answer has a verdict, 1: some have
    none."""
    from stitchcuda.graph.opening import check_settings
    from stitchcuda.tools.device.device import resolve_target
    from stitchcuda.training.data import Split
    from stitchcuda.training.evaluation.evaluation_folder import AnswerSampling
    from stitchcuda.training.evaluation.evaluation_problems import problems_of_split, problems_of_tasks
    from stitchcuda.training.evaluation.model_checkpoint import find_checkpoint
    from stitchcuda.training.rubric import open_judge

    if (data is None) == (tasks is None):
        raise BadInput("give either --data or --tasks: the problems to evaluate on")
    if split not in ("test", "train"):
        raise BadInput(f"--split {split} is none: give test or train")
    target = resolve_target(device)
    settings = check_settings({
        "target": target, "policy": policy, "precision": precision, "gpu_memory_gb": gpu_memory_gb,
        "time_baselines": baselines and target == "cuda",
    })  # fmt: skip
    if judge and judge.startswith("mailbox"):
        raise BadInput("--judge cannot be a mailbox here: an evaluation does not wait for people")
    chat = open_judge(judge, base_url) if judge else None
    source = data or tasks
    assert source is not None
    skills = cast("list[Skill]", skill or [1])
    problems = problems_of_split(data, cast(Split, split), skills) if data else problems_of_tasks(source)
    found = [find_checkpoint(given, base) for given in checkpoints]
    require_packages()
    from stitchcuda.training.evaluation import evaluate as evaluation
    from stitchcuda.training.evaluation.evaluation_table import evaluation_markdown

    sampling = AnswerSampling(
        seeds=seeds, temperature=temperature, top_p=top_p, top_k=top_k, max_completion=max_completion, batch=batch
    )
    plan = evaluation.plan_evaluation(found, problems, sampling, settings, out, judge=judge or "")
    if dry_run:
        print(plan.model_dump_json() if as_json else evaluation.plan_markdown(plan))
        return 0
    made = evaluation.evaluate(
        plan, problems, out, chat, source=source, gpus=first_gpus(gpus or 1) if target == "cuda" else (), at_once=jobs,
        tell=tell,
    )  # fmt: skip
    print(made.model_dump_json() if as_json else evaluation_markdown(made), end="\n" if as_json else "")
    return 1 if made.without_verdict else 0


@app.command()
@report_errors(interrupted="interrupted: nothing of the folder is left")
def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="What `train sft` or `train grpo` has written to.")],
    into: Annotated[Path, typer.Option("--into", metavar="DIR", help="A new folder; its name is the model's.")],
    merge: Annotated[bool, typer.Option("--merge", help="A whole model, with the adapter added to the weights.")] = False,
    base: Base = None,
    evaluation: Annotated[
        Path | None, typer.Option("--evaluation", metavar="DIR", help="Of `train evaluate`: its figures go into the card.")
    ] = None,
    licence: Annotated[str, typer.Option("--licence", help="Of the model, as the Hugging Face hub names it.")] = "",
    as_json: AsJson = False, debug: Debug = False,
) -> None:  # fmt: skip
    """Writes a finished run's adapter or model as a folder with a model card, and shows how it is served."""
    require_packages()
    from stitchcuda.training.export.exported import export_run

    made = export_run(run, into, merge=merge, base=base, evaluation=evaluation, licence=licence, tell=tell)
    if as_json:
        print(made.model_dump_json())
        return
    print(f"{made.folder}  {made.form}, SHA-256 {made.sha256[:16]}…")
    for way in made.served:
        print(way.command)
        print(f"stitchcuda optimize model.py --model openai:{way.model} --base-url http://localhost:8000/v1")
