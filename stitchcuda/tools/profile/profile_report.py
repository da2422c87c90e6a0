"""Makes what `stitchcuda profile` shows: where the time of a reference or a program goes, against the speed of light.

Reference and program are profiled on one GPU, one after the other; nothing is judged.
Where to look next: `tools/profile/profiling.py` (how it is measured), `tools/profile/profile_text.py` (sentences),
`tools/profile/profile_table.py` (tables), `cli/app.py` (the command).
"""

from __future__ import annotations

from pathlib import Path

from stitchcuda.compiler.capture.op_graph import OpGraph
from stitchcuda.compiler.regions.floor import program_floor
from stitchcuda.state import DeviceFacts, Precision, Record
from stitchcuda.tools.profile import kernel_text, profile_table, profile_text, profiling
from stitchcuda.tools.profile.profiling import CountedKernels
from stitchcuda.tools.profile.runner import Runner
from stitchcuda.tools.profile.system_profile import SystemProfile, grouped


class ProfileReport(Record):
    """All figures of one `stitchcuda profile`, which `--json` prints; times are milliseconds of one warm call."""

    name: str                              # of the profiled reference or program
    device: DeviceFacts
    floor_ms: float | None                 # speed of light of the reference's graph; None: it could not be captured
    floor_binds: str = ""
    reference: SystemProfile
    program: SystemProfile | None = None
    kernels: CountedKernels = CountedKernels(skipped="not asked for: --counters reads them")
    notes: tuple[str, ...] = ()

    @property
    def asked(self) -> SystemProfile:
        """The profile of the program, or of the reference if there is no program."""
        return self.program or self.reference


def profile(
    judge: Runner, graph: OpGraph, program: Path | None, *, name: str, device: DeviceFacts, precision: Precision, counters: bool
) -> ProfileReport:
    """Profiles the judge's reference, which was captured as `graph`, and a program for it unless that is None.

    `counters`: also reads hardware counters of the longest kernels. `name` is printed. Raises `Unavailable` without a GPU and
    for a program that does not load.
    """
    before = profiling.system_profile(judge, None)
    after = profiling.system_profile(judge, program) if program else None
    report = ProfileReport(
        name=name,
        device=device,
        floor_ms=None,
        reference=before,
        program=after,
        notes=(f"no floor: {graph.opaque}",) if graph.opaque else (),
    )
    if not graph.opaque:
        floor = program_floor(graph, device, precision)
        report = report.model_copy(update={"floor_ms": floor.ms, "floor_binds": floor.binds})
    if counters:
        report = report.model_copy(update={"kernels": profiling.kernel_profiles(judge, program, report.asked)})
    return report


def text(report: ProfileReport) -> str:
    """Returns a report for a terminal of 100 columns."""
    shown, device = report.asked, report.device
    lines = [f"{report.name} on {device.name}, driver {device.driver}, torch {device.torch}: {profile_text.bottleneck(shown)}"]
    lines += profile_text.summary(shown)
    if report.floor_ms:
        time = shown.busy_ms if shown.busy_ms is not None else shown.span_ms
        ceilings = "measured" if device.measured else "nominal"
        lines.append(
            f"speed of light {profile_text.ms(report.floor_ms)} ({report.floor_binds}; ceilings {ceilings}): "
            f"the device is busy {time / report.floor_ms:.1f} times as long"
        )
    lines += report.notes
    if report.program is None:
        lines += ["", profile_table.table(shown)]
    else:
        before, after = grouped(report.reference), grouped(report.program)
        lines += ["", profile_table.comparison(before, after, names=("reference", "program"))]
    for kernel in report.kernels.kernels:
        lines += ["", kernel_text.for_person(kernel)]
    return "\n".join([*lines, *report.kernels.notes, *_reasons(report)])


def _reasons(report: ProfileReport) -> list[str]:
    """Says why there are no counters, and why a profile does not come from Nsight Systems."""
    lines = [] if not report.kernels.skipped else ["", f"counters: none ({report.kernels.skipped})"]
    for what, shown in (("the reference", report.reference), ("the program", report.program)):
        if shown is not None and shown.why:
            lines += ["", f"{what} was seen through {profile_text.SOURCES[shown.source]}: {shown.why}"]
    return lines
