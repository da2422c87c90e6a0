"""Two made-up runs of one set of programs, at two precisions, with every kind of row: for the page's test and its picture."""

from __future__ import annotations

from stitchcuda.bench.results import Asked, Result
from stitchcuda.bench.table import BenchTable, make_table
from stitchcuda.state import Precision, Settings

NAMES = (
    "level3-5_AlexNet", "level3-9_ResNet18", "level3-21_EfficientNetMBConv", "level3-31_VisionAttention",
    "level3-35_LSTM", "level3-43_MinGPTCausalAttention", "level3-44_MiniGPTBlock", "level3-48_Mamba2ReturnY",
)  # fmt: skip
DEVICE = "a GPU of this example"
_EAGER = (1.9, 1.34, 2.8, 1.12, 0.0, 3.6, 2.1, 4.4)
_OVER = {"eager": 1.0, "graph": 0.81, "compile": 0.66, "max-autotune": 0.59, "channels-last": 0.55}


def example_tables() -> tuple[BenchTable, BenchTable]:
    return _table("reference", 5), _table("tf32", 8)


def _table(precision: Precision, correct: int) -> BenchTable:
    asked = Asked(
        kind="verify", source="jsonl", path="/data/published.jsonl", problems=NAMES, contents=NAMES,
        settings=Settings(target="cuda", precision=precision),
    )  # fmt: skip
    return make_table(asked, {name: _result(place, name, correct) for place, name in enumerate(NAMES)})


def _result(place: int, name: str, correct: int) -> Result:
    known = Result(id=name, problem=name, end="accepted", claimed=1.2 * _EAGER[place] or 2.0, device=DEVICE, tier="timed",
                   seconds=31.0 + 7 * place)
    if name.endswith("LSTM"):
        return known.model_copy(update={"end": "broken", "reasons": ("the output does not depend on the input",)})
    if name.endswith("VisionAttention"):
        why = "the reference ran out of memory: use smaller inputs"
        return known.model_copy(update={"end": "could not judge", "reasons": (why,)})
    if place >= correct:
        return known.model_copy(update={
            "end": "refused", "within_bound": False, "tolerance": 3e-4 * place, "significand": (10.4, 21.6),
            "reasons": (f"output is wrong: largest error {0.002 * place:.3g} where 2.1e-06 is allowed",),
            "shares": (0.7, 0.2, 0.1),
        })  # fmt: skip
    return known.model_copy(update={
        "within_bound": True, "tolerance": 2e-6 if place % 2 else 2e-4, "significand": (21.2, 21.6),
        "shares": (0.64, 0.31, 0.05),
        "speedups": {mode: share * _EAGER[place] for mode, share in _OVER.items()},
    })  # fmt: skip
