"""What repeats in a text is folded: groups of lines with other numbers, long lists; what does not repeat stays as it is."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from stitchcuda.engineers.folding import LEAST_TIMES, MOST_LINE, find_groups, fold_lines, shorten_line

STEP = """        joined = torch.cat((x[{at}], tanh{before}), dim=1)
        linear{this} = F.linear(joined, self.i2h.weight)
        tanh{this} = torch.tanh(linear{this})"""


def unrolled(times: int) -> str:
    """A recurrent net as torch.export names it: the first of each name has no number."""
    names = ["", *(f"_{at}" for at in range(1, times))]
    steps = [STEP.format(at=at, this=names[at], before=names[at - 1] if at else "_start") for at in range(times)]
    outputs = ", ".join(f"tanh{name}" for name in names)
    return "\n".join(["    def forward(self, x):", *steps, f"        return torch.stack(({outputs}))"])


@given(st.lists(st.sampled_from("abc"), max_size=60))
def test_groups_cover_the_items_in_order_and_repeat(keys: list[str]) -> None:
    groups = find_groups(keys)
    covered = [at for group in groups for at in range(group.start, group.start + group.period * group.times)]
    assert covered == list(range(len(keys)))
    for group in groups:
        first = keys[group.start : group.start + group.period]
        assert keys[group.start : group.start + group.period * group.times] == first * group.times
        assert group.times == 1 or group.times >= LEAST_TIMES
        assert group.times > 1 or group.period == 1


def test_the_longest_repetition_is_found_with_its_shortest_period() -> None:
    (start, *steps, end) = [(group.start, group.period, group.times) for group in find_groups([*"s", *"abc" * 40, *"e"])]
    assert (start, steps, end) == ((0, 1, 1), [(1, 3, 40)], (121, 1, 1))


def test_an_unrolled_loop_is_shown_twice_and_its_list_is_cut() -> None:
    whole, lines = unrolled(256).splitlines(), fold_lines(unrolled(256)).splitlines()
    (marker,) = [at for at, line in enumerate(lines) if "of the same" in line]
    more = re.fullmatch(r" {8}… \((\d+) more of the same 3 lines, with other numbers\)", lines[marker])
    assert more is not None
    assert len(lines) - 1 + 3 * int(more[1]) == len(whole)
    assert len(lines) <= 12
    assert lines[:marker] == whole[:marker]
    *rest, last = lines[marker + 1 :]
    assert rest == whole[-len(rest) - 1 : -1]
    assert last.startswith("        return torch.stack((tanh, tanh_1, ")
    assert last.endswith(", tanh_255))")
    (between,) = re.findall(r", … \((\d+) more\) …, ", last)
    assert int(between) + last.count("tanh") == 256


def test_what_hardly_repeats_stays_as_it_is() -> None:
    for text in (unrolled(3), "a = 1\n\n\nb = 2\n\n\nc = 3", "", "one line"):
        assert fold_lines(text) == text


@given(st.text(alphabet="ab, ", max_size=1500))
def test_a_line_is_cut_to_its_most(line: str) -> None:
    short = shorten_line(line)
    assert len(short) <= MOST_LINE + 40
    assert short == line or len(line) > MOST_LINE
    if match := re.search(r"… \(([\d,]+) more\) …", short):
        assert short[: match.start()].count(", ") - 1 + short[match.end() :].count(", ") + int(match[1].replace(",", "")) == (
            line.count(", ")
        )


def test_a_line_without_a_list_says_how_many_characters_are_missing() -> None:
    assert re.fullmatch(r"x+… \(6\d\d characters left out\) …x+", shorten_line("x" * 1000))
