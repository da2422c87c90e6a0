"""Decides whether a worker's clock and the judge's own clock agree. Pure functions on times in milliseconds.

The judge knows a call's time as the difference between a block and an empty block, over the number of calls. An empty block has
to take as long as in the reference's worker, which is trusted. For short calls that difference is small against the rest, so
there are rows too: many calls without pauses, each of which takes no longer than one that starts on an idle device with a cold
cache. The shortest span of each kind counts, since a busy machine only makes spans longer.
Where to look next: `verify/timing/rounds.py` (where the figures come from).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median, quantiles

AGREE = 1.5                                # factor by which two clocks may differ on the same work
EMPTY_AGREE = 1.3                          # factor between empty blocks of two workers
MARGIN_MS = 0.02                           # per call, allowed in any case
ROW_MS = 0.3                               # per row, for the request, its answer, and waiting for the device
REST_MS = 0.01                             # what waiting for an idle device may take
_NOISE = 3.0                               # standard errors by which medians may differ
_IQR_TO_SE = 0.93                          # standard error of a median of n normal samples, over IQR / sqrt(n)


@dataclass
class ClockFigures:
    """One worker's times: block medians by its own clock, spans of requests by the judge's. All blocks have `calls` calls."""

    calls: int = 1                         # in one block
    inside: list[float] = field(default_factory=list)  # a call on its stream
    fresh: list[float] = field(default_factory=list)  # the same for calls with inputs at new addresses
    rest: list[float] = field(default_factory=list)  # other work on the device after that stream was done
    spans: list[float] = field(default_factory=list)  # a block, by the judge's clock
    empty_spans: list[float] = field(default_factory=list)  # a block without its calls
    rows: list[tuple[float, int]] = field(default_factory=list)  # (span, number of calls)

    def slower_at_new_addresses(self) -> bool:
        """Whether calls at new addresses are so much slower that only they count; the median of all calls would be too fast.
        An honest program may record a CUDA graph anew for each address."""
        return len(self.fresh) == len(self.inside) > 0 and median(self.fresh) > AGREE * median(self.inside)

    def block_medians(self, *, fresh: bool) -> list[float]:
        """Returns block medians, of all calls or (`fresh`) of those at new addresses."""
        return self.fresh if fresh else self.inside

    def inside_ms(self) -> float:
        return median(self.block_medians(fresh=self.slower_at_new_addresses()))

    def outside_ms(self) -> float:
        """A call's time by the judge's clock."""
        return max(0.0, (min(self.spans) - min(self.empty_spans)) / self.calls)

    def row_ms(self) -> float:
        """The time of a call in a row, by the judge's clock."""
        return min(span / calls for span, calls in self.rows)

    def noise_ms(self) -> float:
        """The standard error of `outside_ms`."""
        return (_error(self.spans) + _error(self.empty_spans)) / self.calls


def hidden_ms(program: ClockFigures, reference: ClockFigures) -> float:
    """Returns the device work of a program's call that goes on after its stream is done. Usually 0."""
    over = median(program.rest) - median(reference.rest)
    return over if over > REST_MS else 0.0


def find_contradictions(program: ClockFigures, reference: ClockFigures) -> list[str]:
    """Returns sentences on clocks that contradict each other; none for an honest program."""
    found = []
    inside = program.inside_ms()
    hidden = hidden_ms(program, reference)
    if hidden > (AGREE - 1) * inside:
        found.append(
            f"work goes on after the call: {inside:.4f} ms on its stream and {hidden:.4f} ms elsewhere after that; "
            "join side streams and threads before forward returns"
        )
    outside = program.outside_ms()
    noise = _NOISE * min(program.noise_ms(), MARGIN_MS)
    if outside > AGREE * (inside + hidden) + MARGIN_MS + noise:
        found.append(
            f"the worker's clock says {inside:.4f} ms for a call where the judge's own says {outside:.4f} ms "
            f"(a factor of {AGREE} is allowed)"
        )
    if program.rows and program.row_ms() > AGREE * (inside + hidden) + ROW_MS / median(calls for _, calls in program.rows):
        found.append(
            f"the worker's clock says {inside:.4f} ms for a call where each of many in a row takes {program.row_ms():.4f} ms "
            f"by the judge's own (a factor of {AGREE} is allowed)"
        )
    empty, expected = min(program.empty_spans), min(reference.empty_spans)
    if empty > EMPTY_AGREE * expected + MARGIN_MS * program.calls + _NOISE * _error(reference.empty_spans):
        found.append(
            f"without its calls a block takes {empty:.3f} ms in the program's worker and {expected:.3f} ms in the reference's: "
            "something runs beside them"
        )
    return found


def _error(values: Sequence[float]) -> float:
    """The standard error of a median, used for the shortest span too, which is no less certain."""
    if len(values) < 4:
        return 0.0
    low, _, high = quantiles(values, n=4)
    return float(_IQR_TO_SE * (high - low) / len(values) ** 0.5)
