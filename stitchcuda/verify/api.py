"""Gives the verdict on a program: correctness, policy, and on a GPU the speed-up. `Verifier` is the door to the verifier.

Policy `stitched`: own kernels must do at least `OWN_SHARE` of the work, unless the program declares a host-side task that was
seen at work; then the verdict is labelled "host-only", or "small own share" if an own kernel is needed. Policy `strict`: no
framework compute beyond `FRAMEWORK_SHARE`. A program that could not be judged raises `Unavailable`, which is no verdict.
Where to look next: `verify/client.py` (asks the judge process), `verify/judge/examination.py` (who decides on correctness).
"""

from __future__ import annotations

import ast
import json
import math
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TypedDict, Unpack

from pydantic import Field

from stitchcuda.compiler.syntax import parse_module
from stitchcuda.errors import BadInput, Unavailable
from stitchcuda.sandbox.limits import Limits
from stitchcuda.state import (
    BuildResult,
    CheckResult,
    KernelRole,
    OutputError,
    Policy,
    Precision,
    Record,
    Settings,
    Target,
    Tier,
    TimingResult,
)
from stitchcuda.tools.build import nvcc
from stitchcuda.tools.device import device
from stitchcuda.tools.device.toolkit import user_cache
from stitchcuda.verify.client import Judge
from stitchcuda.verify.integrity.screen import LONGEST
from stitchcuda.verify.integrity.snapshot import check_readable, reading

OWN_SHARE = 0.05                           # policy "stitched": the least share of own kernels
HOST_BYTES = 4096                          # device memory that the host may touch in a call: for sizes, flags, a scalar
EXCHANGED = 0.8                            # if other library kernels do more of the replaced work, a gain is needed
FRAMEWORK_SHARE = 0.02                     # policy "strict": copies and fills around the kernels are allowed
_MOST_CHARACTERS = 2000                          # of one reason or note


class Shares(Record):
    """Shares of device time on a GPU, of bytes moved on the simulator."""

    own: float = 0.0
    vendor: float = 0.0
    framework: float = 0.0


class Seconds(Record):
    """Seconds that the parts of a verification took. `questions`: those of the check, by question."""

    build: float = 0.0
    check: float = 0.0
    timing: float = 0.0
    questions: dict[str, float] = Field(default_factory=dict)


class Verdict(Record):
    """The `--json` object of `stitchcuda verify`. `max_error` and `error_bound` are of the output closest to its bound."""

    accepted: bool
    tier: Tier
    reasons: tuple[str, ...] = ()
    label: str = ""                        # if it is accepted for a host-side task: "host-only" or "small own share"
    speedup: float | None = None           # over eager, timed tiers only
    max_error: float | None = None
    error_bound: float | None = None
    shares: Shares = Shares()
    seconds: Seconds = Seconds()
    notes: tuple[str, ...] = ()
    kernels: tuple[KernelRole, ...] = ()
    protections: tuple[str, ...] = ()      # of the sandbox that were in force while the program ran
    unprotected: tuple[str, ...] = ()      # "NAME: reason" of those that this machine denies


class VerifierOptions(TypedDict, total=False):
    """How programs are judged, whoever asks."""

    target: Target | None                  # by default the GPU if there is one, else the simulator
    policy: Policy                         # "stitched" by default
    precision: Precision                   # "reference" by default
    cache: Path | None                     # the folder for builds, by default the user's
    seeds: int                             # the number of input sets, 5 by default
    bounds: Limits | None                  # limits of time and memory
    gpu_memory_gb: float | None            # most gigabytes of the GPU's memory to use, by default all


def check_options(options: Mapping[str, object]) -> None:
    """Raises `TypeError` for an option that `VerifierOptions` does not name."""
    if unknown := options.keys() - VerifierOptions.__annotations__.keys():
        raise TypeError(f"a verifier has no option {', '.join(sorted(unknown))}")


class Verifier:
    """Judges programs of one reference, one after the other, each with secret parameters and inputs of its own. A context
    manager: the reference is loaded once, with the first program. Not to be used by several threads at once.
    """

    def __init__(self, reference: Path, *, gpu: str | None = None, **options: Unpack[VerifierOptions]) -> None:
        """`gpu`: the one to use, as in CUDA_VISIBLE_DEVICES; by default the first visible one."""
        check_options(options)
        target = options.get("target") or device.resolve_target("auto")
        most = options.get("gpu_memory_gb")
        if most is not None and most <= 0:
            raise BadInput(f"--gpu-memory-gb {most} leaves no memory: give gigabytes, such as 24")
        policy, precision = options.get("policy", "stitched"), options.get("precision", "reference")
        self._settings = Settings(target=target, policy=policy, precision=precision, gpu_memory_gb=most)
        self._cache, self._seeds = options.get("cache") or builds_folder(), options.get("seeds", 5)
        self._arch = device.device_facts(target).arch
        bounds = options.get("bounds")
        self.judge = Judge(reference.resolve(), self._settings, cache=self._cache, arch=self._arch, bounds=bounds, gpu=gpu)

    def verify(self, program: Path, *, policy: Policy | None = None) -> Verdict:
        """Judges a program folder or a single file with class ModelNew. `policy`: in place of this verifier's.

        Raises `BadInput` for a reference or program that cannot be used, `Unavailable` if it could not be judged.
        """
        require_program(program)
        program, on_gpu = program.resolve(), self._settings.target == "cuda"
        with reading(program):
            built = nvcc.build(program, arch=self._arch, cache=self._cache, link=on_gpu)
        if not built.ok:
            seconds = Seconds(build=built.seconds)
            return Verdict(accepted=False, tier="compiled", reasons=(f"the build failed: {built.log}",), seconds=seconds)
        check = self.judge.verify_final(program, seeds=self._seeds)
        if not check.ok and check.tier == "compiled":
            raise Unavailable(f"{program}: {'; '.join(map(shorten, (*check.reasons, *check.notes[-1:])))}")
        timing, timing_s = None, 0.0
        if check.ok and on_gpu:
            started = time.monotonic()
            timing = self.judge.time(program, program, twice=True)
            timing_s = time.monotonic() - started
        with reading(program):             # the policy reads its manifest
            return _verdict(program, policy or self._settings.policy, built, check, timing, timing_s)

    def close(self) -> None:
        """Ends the judge and all its workers. May be called twice."""
        self.judge.close()

    def __enter__(self) -> Verifier:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def verify(program: Path, reference: Path, **options: Unpack[VerifierOptions]) -> Verdict:
    """Judges one program folder or single file with class ModelNew on secret inputs that no program has seen.

    The options are those of `Verifier`, which judges several programs of one reference. Raises `BadInput` for a reference or
    program that cannot be used, `Unavailable` if it could not be judged.
    """
    require_program(program)                  # before a judge is started
    with Verifier(reference, **options) as verifier:
        return verifier.verify(program)


def builds_folder() -> Path:
    """Returns the user's folder for builds of programs that belong to no session. Raises `Unavailable` if it cannot be made."""
    cache = user_cache() / "verify"
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        remedy = "set XDG_CACHE_HOME to a folder you may write to"
        raise Unavailable(f"cannot write {cache} ({error.strerror}): {remedy}") from error
    return cache


def require_program(program: Path) -> None:
    """Raises `BadInput` unless `program` is a folder with model_new.py or a file, and may define ModelNew."""
    if not program.exists() or (program.is_dir() and not (program / "model_new.py").is_file()):
        raise BadInput(f"{program} is no program: give a folder with model_new.py, or a Python file with class ModelNew")
    check_readable(program)
    source = program / "model_new.py" if program.is_dir() else program
    with reading(program):
        if not _may_define_model(source):
            raise BadInput(f"{source} defines no class ModelNew, so that nothing can be judged: give a program that does")


def _may_define_model(source: Path) -> bool:
    """Whether a Python file may define ModelNew. True if it cannot be parsed: the judge then says what is wrong with it."""
    if source.stat().st_size > LONGEST[".py"]:
        return True
    try:
        nodes = list(ast.walk(parse_module(source.read_bytes())))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return True
    fields = ("name", "asname", "id", "attr", "value")      # "*": an import of all names
    return any(getattr(node, field, None) in ("ModelNew", "*") for node in nodes for field in fields)


def policy_reasons(
    program: Path, policy: Policy, check: CheckResult, timing: TimingResult | None = None
) -> tuple[tuple[str, ...], str]:
    """Returns (why the policy refuses the program, its label: "host-only", "small own share" or ""). Failures of its kernels
    that the program caught come first among the reasons.

    A host-side task counts if program.json declares it, it was seen at work, and the program is faster where it was timed.
    """
    reasons, label = _judge_shares(program, policy, check, timing)
    return ((*check.caught, *reasons) if reasons else ()), label


def _judge_shares(
    program: Path, policy: Policy, check: CheckResult, timing: TimingResult | None
) -> tuple[tuple[str, ...], str]:
    if policy == "strict":
        framework = check.framework_share
        if check.elsewhere:
            framework -= check.boundary / check.elsewhere * (check.framework_share + check.vendor_share)
        if framework > FRAMEWORK_SHARE:
            return ((f"policy strict: {framework:.0%} of the work is in framework operators",), "")
        return (), ""
    if check.host_bytes > max(HOST_BYTES, OWN_SHARE * check.whole):
        touched = f"{check.host_bytes} bytes of device memory are touched by the host in one call"
        return (f"policy {policy}: {touched}: it computes there",), ""
    if check.host_share > OWN_SHARE:
        return (f"policy {policy}: {check.host_share:.0%} of device time are copies to the host: it computes there",), ""
    taken = 1.0 - (check.elsewhere - check.boundary) / check.whole if check.whole else 1.0
    if check.tier != "simulated":
        taken = check.replaced
    slower = timing is not None and timing.speedup <= 1.0
    if check.own_share >= OWN_SHARE and taken >= OWN_SHARE and not (slower and check.exchanged > EXCHANGED):
        return (), ""
    declared = host_tasks(program)
    short = f"policy stitched: own kernels hold {check.own_share:.1%} of the work and {OWN_SHARE:.0%} are needed"
    if check.own_share >= OWN_SHARE:
        short = (
            f"policy stitched: what libraries and framework do in a call is {1 - taken:.0%} of the reference's whole work, so "
            f"its own kernels take over less than {OWN_SHARE:.0%} of it"
        )
    if check.own_share >= OWN_SHARE and taken >= OWN_SHARE and timing is not None:
        short = (
            f"policy stitched: other kernels of libraries do {check.exchanged:.0%} of what those of the reference did, and the "
            f"program gains nothing ({timing.speedup:.2f}x), so that its own kernels take over nothing that can be seen"
        )
    if not declared:
        return (f"{short} where no host-side task is declared",), ""
    if not set(declared) & set(check.host_seen):
        return (f"{short}: the host-side task it declares ({', '.join(declared)}) was not seen at work",), ""
    if timing is not None and slower:
        return (f"{short}: the host-side task it declares gains nothing ({timing.speedup:.2f}x)",), ""
    return (), "small own share" if any(kernel.role == "needed" for kernel in check.kernels) else "host-only"


def host_tasks(program: Path) -> tuple[str, ...]:
    """Returns the host-side tasks that a folder declares in program.json, or a file as `HOST_TASKS = ["cuda_graph"]`. Raises
    `BadInput` for a declaration that is no list of names."""
    if program.is_file():
        return _tasks_in_file(program)
    manifest = program / "program.json"
    if not manifest.is_file():
        return ()
    try:
        declared = json.loads(manifest.read_text(errors="replace")).get("host", [])
    except (ValueError, AttributeError, RecursionError) as error:
        raise BadInput(f"{manifest} is not a program's manifest: {error}") from error
    if not isinstance(declared, list) or not all(isinstance(task, str) for task in declared):
        raise BadInput(f'{manifest} is not a program\'s manifest: "host" is no list of names')
    return tuple(declared)


def _tasks_in_file(program: Path) -> tuple[str, ...]:
    try:
        statements = parse_module(program.read_bytes()).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()                          # a file that does not load is refused elsewhere
    found = [
        statement.value for statement in statements
        if isinstance(statement, ast.Assign) and [getattr(target, "id", "") for target in statement.targets] == ["HOST_TASKS"]
    ]  # fmt: skip
    if not found:
        return ()
    tasks = [getattr(task, "value", None) for task in getattr(found[-1], "elts", [None])]
    if not isinstance(found[-1], ast.List | ast.Tuple) or not all(isinstance(task, str) for task in tasks):
        raise BadInput(f'{program} declares its host-side tasks in no list of names: write HOST_TASKS = ["cuda_graph"]')
    return tuple(map(str, tasks))


def shorten(text: str) -> str:
    """Returns a reason or note of at most `_MOST_CHARACTERS`, with its middle left out if it is longer."""
    half = _MOST_CHARACTERS // 2
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:half]} … ({len(text) - 2 * half} characters) … {text[-half:]}"


def _badness(output: OutputError) -> float:
    return output.max_error / output.max_bound if output.max_bound else output.max_error


def _verdict(
    program: Path, policy: Policy, built: BuildResult, check: CheckResult, timing: TimingResult | None, timing_s: float,
) -> Verdict:  # fmt: skip
    refused, label = policy_reasons(program, policy, check, timing) if check.ok else ((), "")
    refused = (*refused, *(timing.refused if timing else ()))
    reasons = (*check.reasons, *refused)
    closest = max(check.outputs, key=_badness, default=None)
    finite = closest is not None and math.isfinite(closest.max_error)
    return Verdict(
        accepted=check.ok and not refused,
        tier=check.tier,
        reasons=tuple(map(shorten, reasons)),
        label=label,
        speedup=timing.speedup if timing and not timing.refused else None,
        max_error=closest.max_error if closest and finite else None,
        error_bound=closest.max_bound if closest and finite else None,
        shares=Shares(own=check.own_share, vendor=check.vendor_share, framework=check.framework_share),
        seconds=Seconds(
            build=built.seconds, check=check.seconds, timing=timing_s, questions=dict(check.question_seconds)
        ),
        notes=tuple(map(shorten, (*check.notes, *(() if reasons else check.caught), *(timing.notes if timing else ())))),
        kernels=check.kernels,
        protections=check.protections,
        unprotected=check.unprotected,
    )
