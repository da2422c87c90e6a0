"""The same error has the same fingerprint wherever and whenever it happens; another one has another."""

from __future__ import annotations

import pytest

from stitchcuda.nodes.error_fingerprint import fingerprint

ERROR = "/tmp/a1/kernels/norm.cu(17): error: identifier \"foo\" is undefined"


@pytest.mark.parametrize(
    "same",
    [
        "/home/me/.cache/other/norm.cu(123): error: identifier \"foo\" is undefined",
        "norm.cu(1):   error:\n identifier \"foo\" is undefined ",
        "\x1b[31m/tmp/a1/kernels/norm.cu(17): error: identifier \"foo\" is undefined\x1b[0m",
    ],
)
def test_equal(same: str) -> None:
    assert fingerprint(same) == fingerprint(ERROR)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("y: largest error 0.25 at [3, 4]", "y: largest error 1.75e-03 at [0, 12]"),
        ("illegal address 0x7f001a00 in softmax", "illegal address 0x7fff0008 in softmax"),
        ("no symbol in 3f9a8be1c02d4477", "no symbol in 00aabbccddeeff11"),
    ],
)
def test_figures_and_addresses_do_not_count(one: str, other: str) -> None:
    assert fingerprint(one) == fingerprint(other)


@pytest.mark.parametrize(
    "other",
    ["/tmp/a1/kernels/norm.cu(17): error: identifier \"bar\" is undefined", "gelu.cu(17): error: expected a ';'", "y is wrong"],
)
def test_different(other: str) -> None:
    assert fingerprint(other) != fingerprint(ERROR)


def test_nothing_has_no_fingerprint() -> None:
    assert fingerprint("") == fingerprint(" \n") == ""
    assert len(fingerprint("x")) == 16
