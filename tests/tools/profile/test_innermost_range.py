"""Which of nested ranges is the innermost at a time, against looking at all of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stitchcuda.tools.profile.innermost_range import InnermostRanges

Ranges = list[tuple[int, int, int]]


def nested(cuts: list[int]) -> Ranges:
    """Properly nested ranges, as pushing and popping makes them: an even cut pushes, an odd one pops, one after another."""
    ranges: Ranges = []
    around: list[int] = []
    for time, cut in enumerate(cuts):
        if cut % 2 == 0:
            around.append(time)
        elif around:
            ranges.append((around.pop(), time, len(ranges)))
    return ranges


@given(st.lists(st.integers(0, 9), max_size=40))
def test_the_innermost_range_is_found(cuts: list[int]) -> None:
    ranges = nested(cuts)
    cover = InnermostRanges(ranges)
    for time in range(-1, len(cuts) + 1):
        around = [one for one in ranges if one[0] <= time < one[1]]
        assert cover.at(time) == (min(around, key=lambda one: one[1] - one[0])[2] if around else None)


@given(st.lists(st.integers(0, 9), max_size=40), st.integers(0, 45), st.integers(0, 45))
def test_parts_are_what_holds_at_each_time(cuts: list[int], start: int, end: int) -> None:
    ranges = nested(cuts)
    cover, times = InnermostRanges(ranges), dict[int | None, int]()
    for took, label in cover.parts(start, end):
        times[label] = times.get(label, 0) + took
    expected = dict[int | None, int]()
    for time in range(start, end):
        expected[cover.at(time)] = expected.get(cover.at(time), 0) + 1
    found = {label: took for label, took in times.items() if label is not None}
    assert found == {label: took for label, took in expected.items() if label is not None}


def test_a_range_that_ends_after_what_it_is_in_ends_with_it() -> None:
    cover = InnermostRanges([(0, 10, "outer"), (5, 20, "inner")])
    assert [cover.at(time) for time in (4, 5, 9, 10, 15)] == ["outer", "inner", "inner", None, None]
