"""Diffs of programs are what `diff -u` would show, whatever the texts, and trimming says what it leaves out."""

from __future__ import annotations

import difflib

from hypothesis import given
from hypothesis import strategies as st

from stitchcuda.report.diffs import FileChange, unified
from stitchcuda.report.trimming import share, shown, size, trimmed
from stitchcuda.report.untrusted_text import label
from stitchcuda.sandbox.foreign_text import plain

LINES = st.lists(st.sampled_from(["a", "b", "c", "", "}", "x = 1;"]), max_size=40)


def applied(old: list[str], lines: list[str]) -> list[str]:
    """`old` with a unified diff applied."""
    new: list[str] = []
    at = 0
    for line in lines:
        if line.startswith("@@"):
            first, many = map(int, line.split()[1][1:].split(","))
            start = first - (many > 0)
            new += old[at:start]
            at = start
        elif line[0] == "+":
            new.append(line[1:])
        else:
            assert old[at] == line[1:]
            new += [line[1:]] if line[0] == " " else []
            at += 1
    return new + old[at:]


@given(LINES, LINES)
def test_a_diff_turns_the_one_into_the_other(old: list[str], new: list[str]) -> None:
    lines = list(unified(old, new))
    assert applied(old, lines) == new
    assert (lines == []) is (old == new)


UNLIKE = st.lists(st.sampled_from("abcdefghijklmnopqrstuvwxyz"), unique=True)


@given(UNLIKE, st.integers(0, 26), st.lists(st.sampled_from(["new", "more"]), max_size=3))
def test_a_small_change_is_shown_as_diff_shows_it(old: list[str], at: int, more: list[str]) -> None:
    """Where lines repeat, difflib's may be longer."""
    new = [*old[:at], *more, *old[at:]]
    theirs = [line for line in difflib.unified_diff(old, new, lineterm="", n=3) if not line.startswith(("---", "+++"))]
    assert [line.replace(",1 ", " ") for line in unified(old, new)] == [line.replace(",1 ", " ") for line in theirs]


def test_many_lines_alike_take_no_time() -> None:
    old = [f"line {number % 7}" for number in range(3500)]
    new = [f"line {number % 5}" for number in range(3500)]
    assert applied(old, list(unified(old, new))) == new


@given(st.lists(st.integers(0, 1000), max_size=20), st.integers(0, 5000))
def test_small_texts_stay_whole_and_all_together_fit(sizes: list[int], room: int) -> None:
    most = share(sizes, room)
    assert sum(min(each, most) for each in sizes) <= max(room, 0)
    assert sum(sizes) > room or most >= max(sizes, default=0)


@given(st.lists(st.text("ab<&\"'\x1b\u202e", max_size=30), max_size=30), st.integers(0, 900))
def test_what_is_left_out_is_counted(lines: list[str], room: int) -> None:
    text = "\n".join(lines)
    whole = plain(text).splitlines()
    excerpt = shown(text, room)
    assert len(excerpt.lines) + excerpt.left_out == len(whole)
    assert size(excerpt.lines) <= max(room, 0)
    assert list(excerpt.lines[: excerpt.head]) == whole[: excerpt.head]
    assert excerpt.lines[excerpt.head :] == tuple(whole[len(whole) - len(excerpt.lines) + excerpt.head :])
    (file,) = trimmed([FileChange(path="a", what="new", lines=tuple(f"+{line}" for line in lines))], room)
    assert len(file.lines) + file.left_out == len(lines)


@given(st.text())
def test_nothing_hides_in_plain_text_and_nothing_acts_in_a_label(text: str) -> None:
    assert not set(plain(text)) & {"\x00", "\x07", "\x1b", "\x9b", "\u202e", "\u2066", "\u200b", "\ufeff"}
    plain(text).encode()
    assert "<" not in label(text)
    assert len(label("&" * 100)) == len("&amp;") * 43 + 1
