"""Errands of a verdict: questions in order, tidying beside the main line, nothing left when it is over."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any, cast

import pytest

from stitchcuda.verify.processes.background import BackgroundWork


class Stub:
    def __init__(self) -> None:
        self.closed = False

    def close(self) -> None:
        self.closed = True


def test_questions_are_asked_one_after_the_other() -> None:
    said: list[int] = []
    errands = BackgroundWork()
    asked = [errands.ask(partial(said.append, number)) for number in range(20)]
    asked[-1].result()
    assert said == list(range(20))


def test_questions_that_nobody_needs_are_not_begun() -> None:
    begun, enough, said = threading.Event(), threading.Event(), []

    def slow() -> str:
        begun.set()
        enough.wait(10)
        return "slow"

    errands = BackgroundWork()
    first = errands.ask(slow)
    second = errands.ask(lambda: said.append("second"))
    assert begun.wait(10)
    threading.Timer(0.05, enough.set).start()
    errands.answered()
    assert first.result() == "slow"
    assert second.cancelled()
    assert errands.ask(lambda: "another").result() == "another"
    assert said == []


def test_what_was_lent_is_closed_when_all_is_over() -> None:
    one, errands = Stub(), BackgroundWork()
    with pytest.raises(KeyError), errands.close_later(cast(Any, one)):
        raise KeyError("the program's fault")
    errands.quiet()
    assert one.closed


def test_what_failed_is_kept_until_all_is_over() -> None:
    over = threading.Event()

    def fail() -> None:
        raise OSError("the disk is full")

    errands = BackgroundWork()
    errands.tidy(fail)
    errands.tidy(over.set)
    assert over.wait(10)
    errands.tidy(lambda: None)             # says nothing: whoever tidies up has an exception of its own, perhaps
    with pytest.raises(OSError, match="the disk is full"):
        errands.quiet()
    errands.quiet()
