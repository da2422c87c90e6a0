"""Judges every program of a set by the verifier, several at a time; a run that was killed goes on where it was.

Where to look next: `verify/pool.py` (who judges), `bench/programs.py` (the sets), `bench/results.py` (what is kept).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, as_completed
from pathlib import Path

from stitchcuda.bench.programs import ExistingProgram
from stitchcuda.bench.progress import BenchProgress
from stitchcuda.bench.results import Asked, Result, RunFolder, baselines_of, digest_of
from stitchcuda.errors import BadInput, NotJudged, StitchError, UnusableReference
from stitchcuda.state import Settings
from stitchcuda.tools.device.device import device_facts
from stitchcuda.verify.api import Verdict, require_program
from stitchcuda.verify.pool import VerifierPool
from stitchcuda.verify.reference.baselines import time_baselines


def judge(
    pairs: Sequence[ExistingProgram], out: Path, settings: Settings, *, source: str, path: Path, gpus: Sequence[str] = (),
    at_once: int | None = None, tell: Callable[[str], None] = print,
    seen: Callable[[str, Verdict], None] = lambda name, verdict: None,
) -> RunFolder:  # fmt: skip
    """Judges the programs that have no result in the folder `out` yet, and returns the folder.

    `settings`: target, policy, precision, memory of the GPU, and whether baselines are timed. `gpus`, `at_once`: as of
    `VerifierPool`. `tell` gets a line for each result. `seen` gets each program's name and verdict before its
    result is kept. Raises `BadInput` if `out` holds another run.
    """
    folder = RunFolder(out)
    folder.begin(Asked(
        kind="verify", source=source, path=str(path.resolve()), problems=tuple(pair.name for pair in pairs),
        contents=tuple(digest_of(pair.program, pair.reference) for pair in pairs), settings=settings,
    ))  # fmt: skip
    try:
        _judge_rest(folder, pairs, settings, gpus, at_once, tell, seen)
    finally:
        folder.release()
    return folder


def _judge_rest(
    folder: RunFolder, pairs: Sequence[ExistingProgram], settings: Settings, gpus: Sequence[str], at_once: int | None,
    tell: Callable[[str], None], seen: Callable[[str, Verdict], None],
) -> None:  # fmt: skip
    known = folder.results()
    left = [pair for pair in pairs if pair.name not in known]
    facts = device_facts(settings.target)
    device = f"{facts.name}, driver {facts.driver}, torch {facts.torch}" if settings.target == "cuda" else "simulator"
    progress = BenchProgress(len(pairs), [*known.values()], tell)
    with VerifierPool(
        at_once=at_once, gpus=gpus, target=settings.target, policy=settings.policy, precision=settings.precision,
        gpu_memory_gb=settings.gpu_memory_gb,
    ) as pool:  # fmt: skip
        progress.begin(pool.at_once)
        submitted: dict[Future[Verdict], ExistingProgram] = {}
        for pair in left:
            submitted[_submit(pool, pair)] = pair
        for future in as_completed(submitted):
            if future.exception() is None:
                seen(submitted[future].name, future.result())
            progress.add(folder.keep(_result(submitted[future], future, device, folder.folder)))
    if settings.time_baselines:
        _time_baselines(folder, pairs, settings, tell)


def _submit(pool: VerifierPool, pair: ExistingProgram) -> Future[Verdict]:
    """Has a program judged; what is no program gets its verdict here."""
    ended: Future[Verdict] = Future()
    if pair.reference is None:
        ended.set_exception(UnusableReference(pair.why))
        return ended
    try:
        require_program(pair.program)
    except BadInput as error:
        ended.set_result(Verdict(accepted=False, tier="compiled", reasons=(str(error),)))
        return ended
    return pool.submit(pair.program, pair.reference)


def _result(pair: ExistingProgram, judged: Future[Verdict], device: str, out: Path) -> Result:
    program = str(pair.program.relative_to(out.resolve()) if pair.program.is_relative_to(out.resolve()) else pair.program)
    known = Result(id=pair.name, problem=pair.name, end="failed", claimed=pair.claimed, device=device, program=program)
    try:
        verdict = judged.result()
    except UnusableReference as error:
        return known.model_copy(update={"end": "broken", "reasons": (str(error),)})
    except (BadInput, NotJudged) as error:  # it takes too long or too much memory, or the simulator cannot run it
        return known.model_copy(update={"end": "could not judge", "reasons": (str(error),)})
    except Exception as error:             # also a defect of ours: the others go on, and this one is tried again
        return known.model_copy(update={"reasons": (f"could not be judged: {error}",)})
    seconds = verdict.seconds
    bound = verdict.error_bound
    return known.model_copy(update={
        "end": "accepted" if verdict.accepted else "refused",
        "reasons": (*verdict.reasons, *(note for note in verdict.notes if "failed" in note and not verdict.accepted)),
        "label": verdict.label, "tier": verdict.tier,
        "speedups": {"eager": verdict.speedup} if verdict.accepted and verdict.speedup else {},
        "max_error": verdict.max_error / bound if verdict.max_error is not None and bound else None,
        "within_bound": verdict.within_bound, "tolerance": verdict.tolerance,
        "significand": (verdict.significand.used, verdict.significand.needed),
        "shares": (verdict.shares.own, verdict.shares.vendor, verdict.shares.framework),
        "seconds": seconds.build + seconds.check + seconds.timing,
    })  # fmt: skip


def _time_baselines(
    folder: RunFolder, pairs: Sequence[ExistingProgram], settings: Settings, tell: Callable[[str], None]
) -> None:
    """Times the baselines of references with an accepted program, one after the other, each alone on its GPU."""
    results = folder.results()
    for pair in pairs:
        result = results.get(pair.name)
        if result is None or pair.reference is None or not folder.lacks_baselines(result):
            continue
        try:
            times = time_baselines(pair.reference, precision=settings.precision).times
        except StitchError as error:
            tell(f"{pair.name}: no baselines ({error})")
            continue
        folder.add_baselines(baselines_of(pair.name, times))
