"""Do the clocks agree? Pure functions on the figures of one timing: what a worker said, and what the judge saw from outside.

A block and an empty block differ by the calls alone, so outside a call takes what a block takes longer, over the number of
calls. What an empty block itself takes is held against the reference's worker, which is trusted and does the same.
For short calls that difference is small against what surrounds it. So there are rows as well: many calls with nothing between
them take, each, no longer than one that starts on an idle device with a cold cache; only asking and waiting come on top, once.
A busy machine makes spans longer, never shorter, and work that has to be done is in each of them: the shortest one counts.
Times in milliseconds. Where to look next: `verify/timing/rounds.py` (where the figures come from).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median, quantiles

AGREE = 1.5                                # two clocks on the same work
EMPTY_AGREE = 1.3                          # the empty blocks of two workers
MARGIN_MS = 0.02                           # per call: what no clock resolves
ROW_MS = 0.3                               # per row: a question, its answer, waiting for the device
REST_MS = 0.01                             # waiting for an idle device
_NOISE = 3.0                               # standard errors of a median that are no disagreement
_IQR_TO_SE = 0.93                          # of a median of n normal samples, times IQR / sqrt(n)


@dataclass
class ClockFigures:
    """One worker's: block medians from inside, spans of requests from outside. All blocks have the same number of calls."""

    calls: int = 1                         # of one block
    inside: list[float] = field(default_factory=list)  # of a call on its stream
    fresh: list[float] = field(default_factory=list)  # of those calls that find their inputs at new addresses, if there are any
    rest: list[float] = field(default_factory=list)  # of what goes on elsewhere when that stream is done
    spans: list[float] = field(default_factory=list)  # of a block, by the judge's clock
    empty_spans: list[float] = field(default_factory=list)  # of a block without its calls
    rows: list[tuple[float, int]] = field(default_factory=list)  # (span, calls)

    def varies(self) -> bool:
        """Whether new addresses cost it so much that their calls count instead of all: judged by the others, it would be told
        too fast. An honest program may record a CUDA graph anew for each address."""
        return len(self.fresh) == len(self.inside) > 0 and median(self.fresh) > AGREE * median(self.inside)

    def counted(self, *, fresh: bool) -> list[float]:
        """Block medians of those calls, or of all."""
        return self.fresh if fresh else self.inside

    def inside_ms(self) -> float:
        return median(self.counted(fresh=self.varies()))

    def outside_ms(self) -> float:
        """Of a call, by the judge's clock."""
        return max(0.0, (min(self.spans) - min(self.empty_spans)) / self.calls)

    def row_ms(self) -> float:
        """Of a call in a row, by the judge's clock."""
        return min(span / calls for span, calls in self.rows)

    def noise_ms(self) -> float:
        """Standard error of `outside_ms`."""
        return (_error(self.spans) + _error(self.empty_spans)) / self.calls


def hidden_ms(program: ClockFigures, reference: ClockFigures) -> float:
    """Device work of a program's call that its stream does not see. Mostly 0."""
    over = median(program.rest) - median(reference.rest)
    return over if over > REST_MS else 0.0


def reasons(program: ClockFigures, reference: ClockFigures) -> list[str]:
    """Sentences on clocks that contradict each other; none for an honest program."""
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
    """Standard error of a median; the shortest of as many is no less certain, since spans have a floor."""
    if len(values) < 4:
        return 0.0
    low, _, high = quantiles(values, n=4)
    return float(_IQR_TO_SE * (high - low) / len(values) ** 0.5)
