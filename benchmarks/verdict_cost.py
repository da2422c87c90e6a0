"""What the verdict costs beside a check that trusts everything: `python benchmarks/verdict_cost.py --device sim`.

The trusting check is one process: it imports torch, loads reference and program, builds (from a warm cache), runs both on five
seeds and compares with allclose. Ours is `stitchcuda verify` as a function, without timing, cold (it starts its judge) and with
the judge of a session that is there already. Both take the same programs in turn; medians over rounds. The program's own extra
forward passes (variants, repeats, one for each kernel left out) are measured by the trusting process and taken out of the
difference, since any check that looks oftener pays for them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).resolve()
sys.path.insert(0, str(HERE.parent.parent))
from stitchcuda.state import Settings  # noqa: E402
from stitchcuda.tools.device.device import device_facts  # noqa: E402
from stitchcuda.verify.client import Judge  # noqa: E402
from tests.integrity.corpus import entries  # noqa: E402

PROGRAMS = ("h_online_softmax", "h_welford", "h_mlp_workspace", "h_tuple_view")
SEEDS = 5
# Calls beyond the trusting check's: 5 sets twice less 5, many more calls for a second at most, a layout, other parameters.
EXTRA_CALLS = 8


def trusting(program: Path, reference: Path, target: str, cache: Path) -> None:
    """In a process of its own: print seconds for one forward of the program."""
    import importlib.util

    import torch

    from stitchcuda.tools.device.toolkit import runtime_cache
    from stitchcuda.verify.processes.builder import simulator_home
    from stitchcuda.verify.program.build_interceptor import Interceptor
    from stitchcuda.verify.program.builder_worker import BuilderWorker

    def loaded(path: Path, name: str) -> Any:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        return module

    device = "cuda" if target == "cuda" else "cpu"
    home = simulator_home(runtime_cache()).place if target == "sim" else None
    builder = BuilderWorker(target, cache, device_facts(target).arch, home)  # type: ignore[arg-type]
    interceptor = Interceptor(target, program.parent, lambda order: builder.build(order, program.parent))  # type: ignore[arg-type]
    interceptor.install()
    torch.manual_seed(1)
    given = loaded(reference, "reference")
    init = given.get_init_inputs()
    model = given.Model(*init).to(device)
    with interceptor.running():
        new = loaded(program, "model_new").ModelNew(*init).to(device)
        new.load_state_dict(model.state_dict())
    times = []
    for seed in range(SEEDS):
        torch.manual_seed(seed)
        inputs = [value.to(device) if isinstance(value, torch.Tensor) else value for value in given.get_inputs()]
        with torch.no_grad():
            wanted = model(*inputs)
            started = time.perf_counter()
            with interceptor.running():
                got = new(*inputs)
            times.append(time.perf_counter() - started)
        for expected, returned in zip(_flat(wanted), _flat(got), strict=True):
            assert torch.allclose(expected, returned, rtol=1e-3, atol=1e-3)
    print(json.dumps({"forward_s": median(times)}))


def _flat(value: Any) -> list[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    return [part for item in value for part in _flat(item)] if isinstance(value, list | tuple) else [value]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("sim", "cuda"), default="sim")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "stitchcuda-integrity")
    parser.add_argument("--table", type=Path)
    parser.add_argument("--trusting", nargs=2, type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    given.cache.mkdir(parents=True, exist_ok=True)
    if given.trusting:
        trusting(given.trusting[0], given.trusting[1], given.device, given.cache)
        return 0
    settings, arch = Settings(target=given.device), device_facts(given.device).arch
    chosen = [entry for entry in entries("honest") if entry.name in PROGRAMS]
    heads = ("program", "trusting", "ours, cold", "in a session", "extra forwards", "cold, more", "in a session, more")
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for entry in chosen:
        program = entry.program(given.cache / "programs")
        trusted: list[float] = []
        cold: list[float] = []
        warm: list[float] = []
        forwards: list[float] = []
        kernels = 1
        command = [sys.executable, str(HERE), "--device", given.device, "--cache", str(given.cache)]
        for turn in range(given.rounds + 1):
            started = time.monotonic()
            said = subprocess.run(
                [*command, "--trusting", str(program), str(entry.reference)], stdout=subprocess.PIPE, text=True
            )
            if said.returncode:
                parser.error(f"the trusting check of {entry.name} ended with {said.returncode}")
            trusted.append(time.monotonic() - started)
            forwards.append(json.loads(said.stdout.splitlines()[-1])["forward_s"])
            started = time.monotonic()
            with Judge(entry.reference, settings, cache=given.cache, arch=arch) as judge:
                for times in (cold, warm):
                    verdict = judge.verify_final(program, seeds=SEEDS)
                    times.append(time.monotonic() - started)
                    assert verdict.ok, verdict.reasons
                    kernels = sum(kernel.role != "unused" for kernel in verdict.kernels)
                    started = time.monotonic()
            if turn == 0:                  # caches are warm from here on
                for times in (trusted, cold, warm, forwards):
                    times.clear()
        extra = median(forwards) * (EXTRA_CALLS + 2 + kernels) + min(1.0, 96 * median(forwards))
        base = median(trusted)
        lines.append(
            f"| {entry.name} | {base:.2f} s | {median(cold):.2f} s | {median(warm):.2f} s | {extra:.2f} s "
            f"| {median(cold) - base - extra:+.2f} s | {median(warm) - base - extra:+.2f} s |"
        )
        print(lines[-1], flush=True)
    if given.table:
        given.table.write_text("\n".join([f"`python {' '.join(sys.argv)}`, {time.strftime('%Y-%m-%d')}", "", *lines, ""]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
