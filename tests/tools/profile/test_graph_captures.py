"""Nodes of CUDA graphs are traced back to their capture, through any number of clones, and never for ever."""

from __future__ import annotations

from stitchcuda.tools.profile.graph_captures import captures
from stitchcuda.tools.profile.timeline import GraphCapture

FIRST, SECOND = GraphCapture(thread=65, time=100), GraphCapture(thread=66, time=200)


def test_a_clone_was_captured_when_its_original_was() -> None:
    found = captures({(1, 7): FIRST, (1, 8): SECOND}, {(1, 70): (1, 7), (1, 700): (1, 70), (1, 80): (1, 8)})
    assert found == {(1, 7): FIRST, (1, 70): FIRST, (1, 700): FIRST, (1, 8): SECOND, (1, 80): SECOND}


def test_when_a_clone_was_made_is_not_when_it_was_captured() -> None:
    """Some nodes are told of twice: that they came to be, and of what they are clones."""
    assert captures({(1, 7): FIRST, (1, 70): SECOND}, {(1, 70): (1, 7)})[1, 70] == FIRST
    assert captures({(1, 70): SECOND}, {(1, 70): (1, 7)}) == {}, "of what was captured before the recording nothing is known"


def test_what_leads_in_a_circle_has_no_capture() -> None:
    originals = {(1, 1): (1, 1), (1, 2): (1, 3), (1, 3): (1, 4), (1, 4): (1, 3), (1, 5): (1, 6)}
    assert captures({(1, 3): FIRST, (1, 6): SECOND}, originals) == {(1, 5): SECOND, (1, 6): SECOND}


def test_a_chain_is_walked_once_however_many_ask() -> None:
    """Else a file of a few megabytes would take minutes."""
    many = 300_000
    upwards = {(1, node): (1, node - 1) for node in range(1, many)}
    for originals in (upwards, dict(reversed(upwards.items()))):
        assert captures({(1, 0): FIRST}, originals) == dict.fromkeys(((1, node) for node in range(many)), FIRST)
        assert captures({}, originals) == {}
