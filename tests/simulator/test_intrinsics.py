"""Every intrinsic of the simulator against what a real GPU returned (intrinsics_recorded.json, see benchmarks)."""

from __future__ import annotations

import ctypes
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stitchcuda.simulator.build import build_simulated
from tests.simulator.programs import CACHE, HOME

HERE = Path(__file__).parent
SOURCES = sorted((HERE / "intrinsics").glob("*.cu"))
RECORD = HERE / "intrinsics_recorded.json"
DIGITS = {"u8": 2, "u16": 4, "f16": 4, "bf16": 4, "u32": 8, "f32": 8, "f16x2": 8, "bf16x2": 8, "u64": 16, "f64": 16}
# Bits of the exponent and the mantissa of what a word holds; packed pairs are taken apart first.
FLOATS = {"f16": (16, 10), "bf16": (16, 7), "f32": (32, 23), "f64": (64, 52)}


def recorded() -> dict[str, Any]:
    assert RECORD.is_file(), f"{RECORD.name} is missing: run benchmarks/record_intrinsics.py on a machine with a GPU"
    record: dict[str, Any] = json.loads(RECORD.read_text())
    return record


def words_of(text: str, kind: str) -> list[int]:
    return [int(text[i : i + DIGITS[kind]], 16) for i in range(0, len(text), DIGITS[kind])]


def numbers(words: list[int], kind: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Values, ordinals (neighbouring numbers differ by one) and whether each is NaN."""
    if kind.endswith("x2"):
        words, kind = [part for word in words for part in (word & 0xFFFF, word >> 16)], kind[:-2]
    bits, mantissa = FLOATS[kind]
    raw = np.array(words, dtype=np.uint64)
    if kind == "f64":
        values = raw.view(np.float64)
    elif kind == "f16":
        values = raw.astype(np.uint16).view(np.float16).astype(np.float64)
    else:
        with np.errstate(invalid="ignore"):  # signalling NaN
            values = (raw << np.uint64(16 if kind == "bf16" else 0)).astype(np.uint32).view(np.float32).astype(np.float64)
    magnitude = [word & ((1 << (bits - 1)) - 1) for word in words]
    ordinals = np.array([-m if word >> (bits - 1) else m for m, word in zip(magnitude, words, strict=True)], dtype=object)
    infinite = ((1 << (bits - 1 - mantissa)) - 1) << mantissa
    return values, ordinals, np.array([m > infinite for m in magnitude])


def mismatches(got: list[int], wanted: list[int], kind: str, ulps: float, absolute: float) -> list[str]:
    """One line for each word that is farther from the recorded one than the tolerance allows. NaN equals NaN."""
    if kind[0] == "u":
        return [f"word {i}: {a:#x}, recorded {b:#x}" for i, (a, b) in enumerate(zip(got, wanted, strict=True)) if a != b]
    values, ordinals, nan = numbers(got, kind)
    recorded_values, recorded_ordinals, recorded_nan = numbers(wanted, kind)
    wrong = []
    for i in range(len(values)):
        distance = abs(ordinals[i] - recorded_ordinals[i])
        signed_zero = (
            ulps == 0 and values[i] == recorded_values[i] == 0 and np.signbit(values[i]) != np.signbit(recorded_values[i])
        )
        near = distance <= ulps or (absolute > 0 and abs(values[i] - recorded_values[i]) <= absolute)
        if bool(nan[i]) != bool(recorded_nan[i]) or (not nan[i] and (not near or (signed_zero and absolute == 0))):
            wrong.append(f"number {i}: {values[i]!r}, recorded {recorded_values[i]!r}, {distance} ulp apart")
    return wrong


@pytest.fixture(scope="module")
def modules() -> dict[str, ctypes.CDLL]:
    loaded = {}
    for source in SOURCES:
        module = ctypes.CDLL(str(build_simulated([source], name=source.stem, cache=CACHE, home=HOME)))
        for function in (module.case_name, module.case_result, module.case_error):
            function.restype = ctypes.c_char_p
        for function in (module.case_ulps, module.case_absolute):
            function.restype = ctypes.c_double
        loaded[source.stem] = module
    return loaded


def test_the_recording_is_of_a_real_gpu() -> None:
    record = recorded()
    assert "NVIDIA" in record["gpu"]
    assert all(record[field] for field in ("driver", "date", "cuda"))


@pytest.mark.more
@pytest.mark.parametrize("stem", [source.stem for source in SOURCES])
def test_intrinsics_match_the_recording(stem: str, modules: dict[str, ctypes.CDLL]) -> None:
    module, wanted = modules[stem], recorded()["cases"][stem]
    names = [module.case_name(i).decode() for i in range(module.case_count())]
    assert names == list(wanted), "the table has changed: record it again"
    wrong: list[str] = []
    for i, name in enumerate(names):
        kind = module.case_result(i).decode()
        words = (ctypes.c_ulonglong * module.case_words(i))()
        status = module.case_run(i, words)
        assert status == 0, f"{name}: {module.case_error(status).decode()}"
        expected = words_of(wanted[name]["words"], kind)
        found = mismatches(list(words), expected, kind, module.case_ulps(i), module.case_absolute(i))
        if found:
            wrong.append(f"{name}: {len(found)} of {len(expected)} differ, such as {found[0]}")
    assert not wrong, "\n" + "\n".join(wrong)


def test_the_comparison_sees_one_ulp() -> None:
    assert mismatches([0x3F800001], [0x3F800000], "f32", 0, 0)
    assert not mismatches([0x3F800001], [0x3F800000], "f32", 1, 0)
    assert mismatches([0x80000000], [0x00000000], "f32", 0, 0)
    assert not mismatches([0x7FC00000], [0x7FFFFFFF], "f32", 0, 0)
    assert mismatches([0x7F800000], [0x7FC00000], "f32", 0, 0)
