"""Gives the verdict on a program: correctness, policy, and on a GPU the speed-up. `Verifier` is the door to the verifier.

A program that could not be judged raises `Unavailable`, which is no verdict. It runs no generated code itself.
Where to look next: `verify/policy.py` (policies on shares), `verify/client.py` (asks the judge process),
`verify/judge/examination.py` (who decides on correctness).
"""

from __future__ import annotations

import ast
import math
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TypedDict, Unpack

from pydantic import Field

from stitchcuda.compiler.syntax import parse_module
from stitchcuda.errors import BadInput, NotJudged, Unavailable
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
from stitchcuda.tools.build import nvcc, program_sources
from stitchcuda.tools.device import device
from stitchcuda.tools.device.toolkit import user_cache
from stitchcuda.verify.client import Judge
from stitchcuda.verify.integrity.screen import LONGEST
from stitchcuda.verify.integrity.snapshot import check_readable, reading
from stitchcuda.verify.policy import apply_policy, policy_reasons

_MOST_CHARACTERS = 2000                    # of one reason or note
_MISSING = re.compile(
    r"(?:cannot read|fatal error:) ([^\n:]+): No such file|No such file or directory: '([^'\n]+)'|No module named '([\w.]+)'"
)
_ONLY_A_GPU = (
    "simulated: nothing was timed, and what only a GPU shows was not judged: work in streams that the caller does not wait "
    "for, work that goes on after a call, and programs that behave otherwise while they are timed"
)


class Shares(Record):
    """Shares of device time on a GPU, of bytes moved on the simulator."""

    own: float = 0.0
    vendor: float = 0.0
    framework: float = 0.0


class Significand(Record):
    """Bits of the significand that the errors in norm of the output closest to its bound leave: `used` by the program, `needed`
    by the reference itself (a program may have ten times its error, 3.3 bits less). `operators`: what the reference's products
    and convolutions carry, by torch's operator; empty for a program that was not judged to the end."""

    used: float | None = None
    needed: float | None = None
    operators: dict[str, int] = Field(default_factory=dict)


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
    label: str = ""                        # what it is accepted for: "small own share", or "host-only" (no own kernel needed)
    speedup: float | None = None           # over eager, timed tiers only
    max_error: float | None = None
    error_bound: float | None = None
    within_bound: bool | None = None       # whether all outputs are within their bounds; None: none was compared
    tolerance: float | None = None         # the least atol = rtol with which torch.allclose takes all outputs for equal
    significand: Significand = Significand()
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
        self._reference = reference.resolve()
        self.judge = Judge(self._reference, self._settings, cache=self._cache, arch=self._arch, bounds=bounds, gpu=gpu)

    def verify(self, program: Path, *, policy: Policy | None = None) -> Verdict:
        """Judges a program folder, or a single file with class ModelNew, alone. `policy`: in place of this verifier's.

        Raises `BadInput` for a reference or program that cannot be used, `Unavailable` if it could not be judged.
        """
        require_program(program)
        program, on_gpu = program.resolve(), self._settings.target == "cuda"
        with reading(program):
            built = nvcc.build(program, arch=self._arch, cache=self._cache, link=on_gpu)
            refused = not built.ok and not program_sources.has_settings(program)  # the judge builds with the program's settings
        if refused:
            seconds = Seconds(build=built.seconds)
            return Verdict(accepted=False, tier="compiled", reasons=(f"the build failed: {built.log}",), seconds=seconds)
        check = self.judge.verify_final(program, seeds=self._seeds)
        if not check.ok and check.tier == "compiled":
            raise NotJudged(f"{program}: {'; '.join(map(shorten, (*check.reasons, *check.notes[-1:])))}")
        if not check.ok and program.is_file():
            _require_alone(program, self._reference, check.reasons)
        timing, timing_s, policy = None, 0.0, policy or self._settings.policy
        with reading(program):             # the policy reads its manifest
            hopeless = bool(policy_reasons(program, policy, check)[0])
        if check.ok and on_gpu and not hopeless:
            started = time.monotonic()
            timing = self.judge.time(program, program, twice=True)
            timing_s = time.monotonic() - started
        with reading(program):
            return _verdict(program, policy, built, check, timing, timing_s)

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


def _require_alone(program: Path, reference: Path, reasons: Sequence[str]) -> None:
    """Raises `BadInput` if a single file was refused because it did not find what lies beside it, other than the reference."""
    for named, read, module in (found for reason in reasons for found in _MISSING.findall(reason)):
        parts = Path(named or read or f"{module.replace('.', '/')}.py").parts
        tails = (program.parent / Path(*parts[at:]) for at in range(parts[0] == "/", len(parts)))
        needed = next((tail for tail in tails if tail.is_file() and ".." not in tail.parts and tail != reference), None)
        if needed is not None:
            raise BadInput(
                f"{program} needs {needed.name}, which lies beside it, and a single file is judged alone: give a folder that "
                "holds both, the program as model_new.py"
            )


def shorten(text: str) -> str:
    """Returns a reason or note of at most `_MOST_CHARACTERS`, with its middle left out if it is longer."""
    half = _MOST_CHARACTERS // 2
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:half]} … ({len(text) - 2 * half} characters) … {text[-half:]}"


def outputs_within_bound(check: CheckResult) -> bool | None:
    """Whether all outputs are within their bounds, as far as they were compared; None if none was."""
    return all(output.ok for output in check.outputs) if check.outputs else None


def needed_tolerance(check: CheckResult) -> float | None:
    """The least atol = rtol with which torch.allclose takes all outputs for equal on inputs as get_inputs() gives them; None if
    none was compared."""
    return max((output.tolerance for output in check.outputs if output.tolerance is not None), default=None)


def _badness(output: OutputError) -> float:
    return output.max_error / output.max_bound if output.max_bound else output.max_error


def _verdict(
    program: Path, policy: Policy, built: BuildResult, check: CheckResult, timing: TimingResult | None, timing_s: float,
) -> Verdict:  # fmt: skip
    right, check = check.ok, apply_policy(program, policy, check, timing)
    if right and not check.ok and check.not_simulated:
        raise NotJudged(check.not_simulated[0])
    refused = timing.refused if timing else ()
    reasons, accepted = (*check.reasons, *refused), check.ok and not refused
    closest = max(check.outputs, key=_badness, default=None)
    finite = closest is not None and math.isfinite(closest.max_error)
    unseen = (_ONLY_A_GPU,) if accepted and check.tier == "simulated" else ()
    notes = (*check.notes, *(() if reasons else check.caught), *(timing.notes if timing else ()), *unseen)
    return Verdict(
        accepted=accepted,
        tier=check.tier,
        reasons=tuple(map(shorten, reasons)),
        label=check.label if accepted else "",
        speedup=timing.speedup if timing and not timing.refused else None,
        max_error=closest.max_error if closest and finite else None,
        error_bound=closest.max_bound if closest and finite else None,
        within_bound=outputs_within_bound(check),
        tolerance=needed_tolerance(check),
        significand=Significand(
            used=closest.bits if closest else None,
            needed=closest.bits_of_reference if closest else None,
            operators=dict(check.significands),
        ),
        shares=Shares(own=check.own_share, vendor=check.vendor_share, framework=check.framework_share),
        seconds=Seconds(
            build=built.seconds, check=check.seconds, timing=timing_s, questions=dict(check.question_seconds)
        ),
        notes=tuple(map(shorten, notes)),
        kernels=check.kernels,
        protections=check.protections,
        unprotected=check.unprotected,
    )
