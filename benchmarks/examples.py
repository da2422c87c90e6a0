"""The examples through the command line, one table: what each session did and, on a GPU, how fast its program is.

    python benchmarks/examples.py --device sim            # tasks, attempts, seconds, share of bytes in own kernels
    python benchmarks/examples.py --device cuda           # the same, then eager, torch.compile and the program side by side
    python benchmarks/examples.py --device sim --programs tests/corpus

On a GPU the three are timed in one process, interleaved in blocks, with a cold L2 and a device-wide synchronisation before
each call, so that host launch cost counts; a figure is the median over all blocks. This is a second clock: it shares no code
with the session's own timing. Results are written to benchmarks/results/ with date, device and versions.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path
from typing import Any

import stitchcuda

ROOT = Path(__file__).resolve().parent.parent
BLOCKS, CALLS, WARMUP = 12, 10, 10


def run_session(reference: Path, device: str, workspace: Path) -> dict[str, Any]:
    """One session through the command line; its JSON result plus wall seconds and the program's manifest."""
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "stitchcuda", "optimize", str(reference), "--device", device, "--model", "builtin", "--json",
         "--workspace", str(workspace), "--session", reference.stem],
        stdout=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    if done.returncode not in (0, 1):
        raise SystemExit(f"{reference}: stitchcuda ended with exit code {done.returncode}")
    result: dict[str, Any] = json.loads(done.stdout)
    result["seconds"] = time.monotonic() - started
    session = stitchcuda.Session.open(reference.stem, workspace)
    state = session.state()
    final = state.get("final")
    check = final.check if final else None
    result["kept"] = len(state.get("tasks_kept", ()))
    result["own_share"] = check.own_share if check else 0.0
    outside = check.own_share + check.framework_share if check else 0.0
    result["own_outside"] = check.own_share / outside if check and outside else 0.0
    return result


def load(path: Path, name: str) -> Any:
    """Imports one Python file under a name of its own."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def side_by_side(reference: Path, program: Path) -> dict[str, float]:
    """Median milliseconds of one call of eager, torch.compile (default mode) and the program, interleaved in blocks."""
    import copy

    import torch

    source = load(reference, f"reference_{reference.stem}")
    torch.manual_seed(0)
    eager = source.Model(*source.get_init_inputs()).cuda()
    inputs = [x.cuda() if isinstance(x, torch.Tensor) else x for x in source.get_inputs()]
    own = load(program / "model_new.py", f"program_{reference.stem}").ModelNew(*source.get_init_inputs()).cuda()
    own.load_state_dict(eager.state_dict())
    own.train(eager.training)
    compiled = torch.compile(copy.deepcopy(eager))
    runners = {"eager": eager, "compile": compiled, "own": own}
    flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    times: dict[str, list[float]] = {name: [] for name in runners}

    def once(model: Any) -> float:
        flush.zero_()
        torch.cuda.synchronize()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        start.record()
        model(*inputs)
        end.record()
        torch.cuda.synchronize()
        return float(start.elapsed_time(end))

    with torch.no_grad():
        for model in runners.values():
            for _ in range(WARMUP):
                model(*inputs)
        for _ in range(BLOCKS):
            for name, model in runners.items():
                once(model)
                times[name] += [once(model) for _ in range(CALLS)]
    return {name: statistics.median(values) for name, values in times.items()}


def versions(device: str) -> dict[str, str]:
    import torch

    facts = {"date": date.today().isoformat(), "python": platform.python_version(), "torch": torch.__version__}
    if device == "cuda":
        query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
        facts["gpu"] = subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip()
    return facts


def table(rows: list[dict[str, Any]], device: str) -> str:
    """The rows as Markdown."""
    head = ["program", "accepted", "tier", "tasks kept", "attempts", "seconds", "own share", "own outside vendor"]
    head += ["eager ms", "compile ms", "own ms", "vs eager", "vs compile"] if device == "cuda" else ["predicted"]
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    for row in rows:
        cells = [row["name"], "yes" if row["accepted"] else "no", row["tier"] or "-"]
        cells += [f"{row['kept']}/{row['tasks_total']}", str(row["attempts"])]
        cells += [f"{row['seconds']:.0f}", f"{row['own_share']:.0%}", f"{row['own_outside']:.0%}"]
        if device == "cuda":
            t = row["ms"]
            cells += [f"{t['eager']:.3f}", f"{t['compile']:.3f}", f"{t['own']:.3f}"]
            cells += [f"{t['eager'] / t['own']:.2f}x", f"{t['compile'] / t['own']:.2f}x"]
        else:
            cells += [f"{row['predicted_speedup']:.2f}x" if row["predicted_speedup"] else "-"]
        lines.append("| " + " | ".join(cells) + " |")
    if device == "cuda":
        ratios = [(row["ms"]["eager"] / row["ms"]["own"], row["ms"]["compile"] / row["ms"]["own"]) for row in rows]
        means = [statistics.geometric_mean(column) for column in zip(*ratios, strict=True)]
        lines.append(f"\nGeometric mean: {means[0]:.2f}x over eager, {means[1]:.2f}x over torch.compile.")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["sim", "cuda"], default="sim")
    parser.add_argument("--programs", type=Path, default=ROOT / "examples")
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--out", type=Path, help="where to write the results; default benchmarks/results/")
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as workspace:
        for reference in sorted(options.programs.glob("*.py")):
            if options.only and reference.stem not in options.only:
                continue
            row = run_session(reference, options.device, Path(workspace)) | {"name": reference.stem}
            if options.device == "cuda":
                row["ms"] = side_by_side(reference, Path(row["program"]))
            print(json.dumps(row), file=sys.stderr, flush=True)
            rows.append(row)
    facts = versions(options.device)
    text = table(rows, options.device)
    print(", ".join(f"{k} {v}" for k, v in facts.items()) + "\n\n" + text)
    out = options.out or ROOT / "benchmarks" / "results" / f"{options.programs.name}_{options.device}.md"
    out.parent.mkdir(parents=True, exist_ok=True)
    folder = options.programs.resolve()
    shown = folder.relative_to(ROOT) if folder.is_relative_to(ROOT) else folder
    command = f"python benchmarks/examples.py --device {options.device} --programs {shown}"
    out.write_text(f"`{command}`, {', '.join(f'{k} {v}' for k, v in facts.items())}\n\n{text}\n")
    return 0 if all(row["accepted"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
