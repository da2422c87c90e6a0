"""`stitchcuda bench`: optimises every problem of a benchmark, judges programs that exist, and makes tables.

Everything is decided in the room `bench/`. `--json` prints one JSON object on stdout; lines of progress go to stderr.

Where to look next: `bench/run.py`, `bench/table.py` (what the commands call), `cli/console.py` (options).
"""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack, redirect_stdout
from pathlib import Path
from typing import Annotated

import typer

from stitchcuda.cli.console import FORM, AsJson, Debug, report_errors, tell
from stitchcuda.cli.options import Device, GpuMemory, PolicyOption, PrecisionOption, first_gpus
from stitchcuda.errors import BadInput
from stitchcuda.state import Effort

app = typer.Typer(**FORM, help="Runs whole benchmarks, judges programs that exist, and makes tables of the results.")

_OUT = "The folder for results. The same command goes on with what is there."
Out = Annotated[Path, typer.Option("--out", metavar="DIR", help=_OUT)]
Ids = Annotated[str | None, typer.Option("--ids", help="Which problems, by number, such as 1,4-9.")]


@app.command()
@report_errors(interrupted="interrupted: results so far are kept, the same command goes on")
def run(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="kernelbench, folder, jsonl or flashinfer.")],
    path: Annotated[Path, typer.Option("--path", help="Where the problems are: docs/benchmarks.md.")],
    out: Out,
    level: Annotated[list[int] | None, typer.Option("--level", help="Of KernelBench, by default 3; again for several.")] = None,
    ids: Ids = None,
    model: Annotated[
        list[str] | None, typer.Option("--model", help="As for optimize; again for a role: coder=openai:NAME.")
    ] = None,
    base_url: Annotated[str | None, typer.Option("--base-url", help="An OpenAI-compatible server of your own.")] = None,
    device: Device = "auto",
    gpus: Annotated[int | None, typer.Option("--gpus", min=1, help="Use so many of the visible GPUs, by default one.")] = None,
    jobs: Annotated[int | None, typer.Option("--jobs", min=1, help="Sessions at once; by default three to a GPU.")] = None,
    baselines: Annotated[
        bool | None,
        typer.Option("--baselines/--no-baselines", help="Also time a CUDA graph and torch.compile, on a GPU; by default yes."),
    ] = None,
    ray: Annotated[
        str | None, typer.Option("--ray", metavar="ADDRESS", help="Use a Ray cluster's GPUs and hosts; local starts one here.")
    ] = None,
    budget_usd: Annotated[float, typer.Option("--budget-usd", min=0, help="Most to spend on one problem.")] = 5.0,
    max_attempts: Annotated[int, typer.Option("--max-attempts", min=1, help="Most programs to try for one problem.")] = 30,
    max_minutes: Annotated[float | None, typer.Option("--max-minutes", help="Most minutes for one problem.")] = None,
    gpu_memory_gb: GpuMemory = None,
    policy: PolicyOption = "stitched",
    precision: PrecisionOption = "reference",
    effort: Annotated[Effort, typer.Option("--effort", help="As for optimize.")] = "medium",
    as_json: AsJson = False, debug: Debug = False,
) -> int:  # fmt: skip
    """Optimises every problem. Exit code 0: each has a result, 1: some have none, 2: bad input."""
    from stitchcuda.bench import run as runs
    from stitchcuda.bench.problems import read_problems
    from stitchcuda.bench.ray_cluster import LOCAL, RayCluster
    from stitchcuda.cli.model_flags import choose_model, models_by_role
    from stitchcuda.engineers.selection import check_models
    from stitchcuda.graph.opening import check_settings
    from stitchcuda.tools.device.device import resolve_target

    named, roles = models_by_role(model or [])
    chosen, why = choose_model(named, base_url)
    if ray and gpus:
        raise BadInput("--gpus is for the GPUs of this host; with --ray the cluster's are used: leave it out")
    if ray and ray != LOCAL and device == "auto":
        raise BadInput("with --ray say what the cluster's hosts have: --device cuda or --device sim")
    target = "cuda" if ray and device == "cuda" else resolve_target(device)  # the cluster's hosts have the GPUs
    _tell_without_effect(target, gpus, gpu_memory_gb, baselines)
    settings = check_settings({
        "model": chosen, "roles": {role: tuple(models) for role, models in roles.items()}, "base_url": base_url,
        "target": target, "budget_usd": budget_usd, "max_attempts": max_attempts, "max_minutes": max_minutes, "policy": policy,
        "precision": precision, "effort": effort, "gpu_memory_gb": gpu_memory_gb,
        "time_baselines": baselines is not False and target == "cuda",
    })  # fmt: skip
    check_models(settings)
    problems = read_problems(source, path, out / "references", levels=level or (), ids=ids)
    at_most = f", at most ${budget_usd * len(problems):.2f} in all" if chosen != "builtin" else ""
    print(f"engineer: {why}{at_most}", file=sys.stderr)
    with ExitStack() as stack:
        stack.enter_context(redirect_stdout(sys.stderr))  # Ray prints there
        cluster = stack.enter_context(RayCluster(ray, on_gpu=target == "cuda")) if ray else None
        here = target == "cuda" and not cluster
        runs.run(
            problems, out, settings, source=source, path=path, gpus=first_gpus(gpus or 1) if here else (),
            at_once=jobs or (cluster.at_once if cluster else None), tell=tell,
            work=cluster.work if cluster else None,
        )  # fmt: skip
    return _finish(out, as_json)


@app.command()
@report_errors(interrupted="interrupted: results so far are kept, the same command goes on")
def verify(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="pairs, jsonl, kernelbench or sessions.")],
    path: Annotated[Path, typer.Option("--path", help="The folder or table of the programs.")],
    out: Out,
    references: Annotated[
        Path | None, typer.Option("--references", metavar="CHECKOUT", help="For kernelbench: a copy of KernelBench.")
    ] = None,
    ids: Ids = None,
    device: Device = "auto",
    gpus: Annotated[int | None, typer.Option("--gpus", min=1, help="Use so many of the visible GPUs, by default one.")] = None,
    jobs: Annotated[int | None, typer.Option("--jobs", min=1, help="Programs at once; by default three to a GPU.")] = None,
    baselines: Annotated[
        bool, typer.Option("--baselines/--no-baselines", help="Also time a CUDA graph and torch.compile, on a GPU.")
    ] = False,
    gpu_memory_gb: GpuMemory = None,
    policy: PolicyOption = "stitched",
    precision: PrecisionOption = "reference",
    as_json: AsJson = False, debug: Debug = False,
) -> int:  # fmt: skip
    """Judges programs that exist. Exit code 0: each has a verdict, 1: some have none, 2: bad input."""
    from stitchcuda.bench.judging import judge
    from stitchcuda.bench.programs import read_pairs
    from stitchcuda.graph.opening import check_settings
    from stitchcuda.tools.device.device import resolve_target

    target = resolve_target(device)
    _tell_without_effect(target, gpus, gpu_memory_gb, baselines)
    settings = check_settings({
        "target": target, "policy": policy, "precision": precision, "gpu_memory_gb": gpu_memory_gb,
        "time_baselines": baselines and target == "cuda",
    })  # fmt: skip
    pairs = read_pairs(source, path, out / "programs", references=references, ids=ids)
    judge(
        pairs, out, settings, source=source, path=path, gpus=first_gpus(gpus or 1) if target == "cuda" else (), at_once=jobs,
        tell=tell,
    )  # fmt: skip
    return _finish(out, as_json)


@app.command()
@report_errors()
def table(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="What `bench run` or `bench verify` has written to.")],
    other: Annotated[Path | None, typer.Argument(metavar="DIR2", help="Another run, to be shown beside it.")] = None,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write a page, which loads nothing.")] = None,
    as_json: AsJson = False, debug: Debug = False,
) -> None:  # fmt: skip
    """Shows a run's figures, or two runs', as Markdown, as a page, or with --json as one object (of two: {"runs": [...]})."""
    from stitchcuda.bench.table import markdown, read_table

    folders = [folder, other] if other else [folder]
    found = [read_table(place) for place in folders]
    if html:
        from stitchcuda.bench.page import bench_page
        from stitchcuda.store.files import write_atomically

        write_atomically(html, bench_page(found, [place.resolve().name for place in folders]))
        print(f"{html} ({html.stat().st_size / 1e3:,.0f} kB)", file=sys.stderr)
    if as_json:
        tables = [json.loads(table.model_dump_json()) for table in found]
        print(json.dumps(tables[0] if other is None else {"runs": tables}))
    elif not html:
        print("\n".join(map(markdown, found)), end="")


@app.command()
@report_errors()
def export(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="What `bench run` has written to.")],
    into: Annotated[Path, typer.Option("--to", metavar="FOLDER", help="Where the files are written.")],
    debug: Debug = False,
) -> None:  # fmt: skip
    """Writes each accepted program as one file, as KernelBench's own evaluation takes it."""
    from stitchcuda.bench.single_file import write_single_files

    for file in write_single_files(folder, into):
        print(file)


def _tell_without_effect(target: str, gpus: int | None, gpu_memory_gb: float | None, baselines: bool | None) -> None:
    """Says which of these options were given although they have no effect on the simulator."""
    given = {"--gpus": gpus, "--gpu-memory-gb": gpu_memory_gb, "--baselines": baselines}
    if target == "sim" and (names := [name for name, value in given.items() if value]):
        tell(f"without effect on the simulator, which uses no GPU and times nothing: {', '.join(names)}")


def _finish(out: Path, as_json: bool) -> int:
    """Prints the table of the run in `out` and returns the exit code."""
    from stitchcuda.bench.table import markdown, read_table

    found = read_table(out)
    print(found.model_dump_json() if as_json else markdown(found), end="\n" if as_json else "")
    return 1 if found.missing else 0
