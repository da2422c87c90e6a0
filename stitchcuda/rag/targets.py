"""Decides which entries of the documentation hold for a target: nothing that the simulator cannot run, Blackwell's only there.

What the simulator cannot run is known to `simulator/unsupported.py`; a page of techniques is left out where all of its code is
refused, else its sections with refused code or such names. It searches nothing.

Where to look next: `rag/lookup.py` (applies it to what was found), `nodes/documentation.py` (which target a session has).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection

from stitchcuda.rag import playbook_pages
from stitchcuda.rag.chunk import Chunk
from stitchcuda.simulator.unsupported import Unsupported, refuse

BLACKWELL = 100                            # sm_100 and later
_BLACKWELL = re.compile(r"tcgen05|blackwell|sm_?1[0-2]\d[af]?\b|nvfp4|mxfp[468]|SM1[0-2]0", re.IGNORECASE)
_NOT_SIMULATED = ("cublas", "cudnn", "cutlass", "cuda driver", "cub", "thrust", "libcu++", "nvrtc", "curand")
_NAMES = re.compile(
    r"Programmatic|GridDependency|wgmma|mbarrier|cp_async_bulk|[tT]ensorMap|cudaGraph|Cooperative|Cluster|_mma_sync"
)
_OFFERED = re.compile(r"^// Offered from sm_(?P<arch>\d+) for (?P<names>[\w ]+(?:, \w+)*)\.$", re.MULTILINE)
_SPAN = re.compile(r"`([^`\n]+)`")
_CODE = re.compile(r"^```cuda\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


def holds_for(chunk: Chunk, target: str, arch: str) -> bool:
    """Whether an entry is of use for a target ("cuda" or "sim") and an architecture such as "sm_90a"."""
    if _BLACKWELL.search(f"{chunk.title} {chunk.brief}") and not _is_blackwell(arch):
        return False
    if chunk.source.startswith("skeleton:"):
        return _runs(chunk.text, target, arch)
    if target != "sim":
        return True
    if chunk.kind == "technique":
        page = chunk.source.removeprefix("playbook:")
        return page not in _pages_not_simulated() and not _any_refused(chunk.text) and not _names_refused(chunk.text)
    library = chunk.library.lower()
    return not library.startswith(_NOT_SIMULATED) and not _NAMES.search(chunk.title)


def skeletons_for(target: str, arch: str = "", operators: Collection[str] = ()) -> dict[str, str]:
    """Returns, by name, what each skeleton is that runs on a target ("cuda" or "sim") and an architecture such as "sm_90a", and
    is about one of `operators` ("aten.linear.default") or about any operator; "" and () leave nothing out."""
    names = {operator.split(".")[1] if operator.count(".") > 1 else operator for operator in operators}
    texts = playbook_pages.skeletons()
    runs = {name: text for name, text in texts.items() if _runs(text, target, arch) and _is_about(text, names)}
    return {name: playbook_pages.skeleton_title(text) for name, text in runs.items()}


def _runs(skeleton: str, target: str, arch: str) -> bool:
    return not _is_refused(skeleton) if target == "sim" else not arch or _number(arch) >= _offer(skeleton)[0]


def _is_about(skeleton: str, names: Collection[str]) -> bool:
    wanted = _offer(skeleton)[1]
    return not names or not wanted or not wanted.isdisjoint(names)


def _offer(skeleton: str) -> tuple[int, frozenset[str]]:
    """Returns the architecture that a skeleton needs, as a number, and the operators that it is about (none: any), by its line
    "// Offered from sm_80 for linear, mm." Raises ValueError for one without it."""
    if (found := _OFFERED.search(skeleton)) is None:
        raise ValueError('a skeleton lacks its line "// Offered from sm_80 for linear, mm."')
    return int(found["arch"]), frozenset() if found["names"] == "any operator" else frozenset(found["names"].split(", "))


def _number(arch: str) -> int:
    number = re.search(r"\d+", arch)
    return int(number[0]) if number else 0


def _is_blackwell(arch: str) -> bool:
    return _number(arch) >= BLACKWELL


@functools.cache
def _pages_not_simulated() -> frozenset[str]:
    """Returns the slugs of the pages that have code, all of which the simulator refuses."""
    blocks = {slug: _codes(text) for slug, text in playbook_pages.pages().items()}
    return frozenset(slug for slug, codes in blocks.items() if codes and all(map(_is_refused, codes)))


def _any_refused(text: str) -> bool:
    return any(_is_refused(code) for code in _codes(text))


def _names_refused(text: str) -> bool:
    """Whether the prose of a section names, as code, what the simulator refuses."""
    return any(map(_is_refused, _SPAN.findall(_CODE.sub("", text))))


def _codes(text: str) -> list[str]:
    return [found["text"] for found in _CODE.finditer(text)]


def _is_refused(code: str) -> bool:
    try:
        refuse(code, "a page")
    except Unsupported:
        return True
    return False
