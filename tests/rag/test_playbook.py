"""The playbook's pages: all of one form, and their code and the names of NVIDIA's APIs are real."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from stitchcuda.tools.build import libraries
from stitchcuda.tools.device import toolkit
from tests.marks import more_but

PAGES = sorted((Path(__file__).resolve().parents[2] / "stitchcuda" / "rag" / "playbook").glob("*.md"))
SLUGS = (
    "async-copy-pipelines", "cublaslt-heuristics-workspace", "cuda-graphs", "epilogue-fusion", "launch-overhead",
    "layout-choices", "numerics-accumulation", "occupancy-registers", "online-softmax", "operator-significand",
    "persistent-kernels", "pinned-memory-overlap", "reduction-patterns", "shared-memory-bank-conflicts", "split-k",
    "split-precision-gemm", "tma-wgmma", "vectorised-access", "welford-normalisation",
)  # fmt: skip
HEADINGS = ["## When it pays", "## How", "## How to check", "## Pitfalls"]
NVCC = pytest.mark.skipif(toolkit.find_toolkit() is None, reason=toolkit.missing() or "no toolkit")
EACH = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
_BLOCK = re.compile(r"^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_SYMBOL = re.compile(r"\b(?:cuda|cublas|cublasLt|cudnn|cu)[A-Z]\w*|\b(?:CUBLAS|CUBLASLT|CUDNN|CU|CUDA_R|CUDA_ERROR)_[A-Z]\w*")
_INCLUDE = re.compile(r"^#include <(.+)>$", re.MULTILINE)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
# The header to look for by what a symbol begins with, the longest first; all that lie beside it are read.
_HEADERS = {"cublas": "cublasLt.h", "cudnn": "cudnn.h", "cu": "cuda_runtime_api.h"}


def blocks(page: Path, language: str) -> list[str]:
    return [found["text"] for found in _BLOCK.finditer(page.read_text("utf-8")) if found["language"] == language]


def families(text: str) -> tuple[str, ...]:
    """Libraries whose headers a block includes, whether they are here or not."""
    headers = _INCLUDE.findall(text)
    return tuple(one.name for one in libraries.FAMILIES if any(one.headers.fullmatch(header) for header in headers))


CODE = {f"{page.stem}_{number}": text for page in PAGES for number, text in enumerate(blocks(page, "cuda"))}
NEEDED = {name: families(text) for name, text in CODE.items()}


def test_every_technique_has_its_page() -> None:
    assert tuple(page.stem for page in PAGES) == SLUGS


@EACH
def test_a_page_has_the_form(page: Path) -> None:
    text = page.read_text("utf-8")
    lines = text.splitlines()
    prose = _BLOCK.sub("", text).splitlines()
    assert lines[0].startswith("# ")
    assert [line for line in prose if line.startswith("#")][1:] == HEADINGS
    assert 35 <= len(lines) <= 80
    assert [line for line in lines if len(line) > 128] == []
    assert {found["language"] for found in _BLOCK.finditer(text)} <= {"cuda", "python"}
    assert "```" not in "\n".join(prose), "a block that is not closed"


@EACH
def test_a_page_shows_code_that_can_be_read(page: Path) -> None:
    assert blocks(page, "cuda") + blocks(page, "python")
    for text in blocks(page, "python"):
        ast.parse(text)


@NVCC
@pytest.mark.parametrize(
    "needed", more_but(sorted(set(NEEDED.values())), ("CCCL",)), ids=lambda needed: "+".join(needed) or "toolkit"
)
def test_every_block_compiles_by_itself(needed: tuple[str, ...], tmp_path: Path) -> None:
    """To a cubin, which shows errors in host code too: both are read by one front end."""
    kit = toolkit.find_toolkit()
    assert kit is not None
    orders: dict[str, list[str]] = {}
    for name in (name for name, wanted in NEEDED.items() if wanted == needed):
        source = tmp_path / f"{name}.cu"
        source.write_text(CODE[name], encoding="utf-8")
        found = libraries.find(libraries.included_headers([source]), libraries.places(kit))
        if found.missing:
            pytest.skip(" ".join(found.missing.values()))
        folders = [flag for folder in found.includes for flag in ("-isystem", str(folder))]
        flags = ["-std=c++17", "-arch=sm_90a", "-cubin", "-o", str(source.with_suffix(".cubin")), *found.cuda_flags]
        orders[name] = [str(kit.nvcc), *flags, *folders, str(source)]
    assert _failures(orders) == {}


def _failures(orders: dict[str, list[str]]) -> dict[str, str]:
    """What the compiler said, warnings too, of each block of which it said anything."""

    def said(order: list[str]) -> str:
        done = subprocess.run(order, capture_output=True, text=True, check=False, timeout=120)
        return (done.stdout + done.stderr).strip() or ("" if done.returncode == 0 else f"exit status {done.returncode}")

    with ThreadPoolExecutor(2) as pool:
        return {name: text for name, text in zip(orders, pool.map(said, orders.values()), strict=True) if text}


@NVCC
@pytest.mark.parametrize("prefix", _HEADERS)
def test_every_symbol_in_backticks_is_in_a_header(prefix: str) -> None:
    named: dict[str, str] = {}
    for page in PAGES:
        for span in re.findall(r"`([^`\n]+)`", _BLOCK.sub("", page.read_text("utf-8"))):
            named.update({name: page.stem for name in _SYMBOL.findall(span) if _prefix(name) == prefix})
    assert named, "no page names any"
    folder = _folder(_HEADERS[prefix])
    if folder is None:
        pytest.skip(f"{_HEADERS[prefix]} is not on this machine")
    assert {name: page for name, page in named.items() if name not in _symbols(folder)} == {}


def _prefix(name: str) -> str:
    return next(prefix for prefix in _HEADERS if name.lower().startswith(prefix))


def _folder(header: str) -> Path | None:
    kit = toolkit.find_toolkit()
    assert kit is not None
    found = libraries.find({header}, libraries.places(kit))
    return next((folder for folder in (*found.includes, *kit.includes) if (folder / header).is_file()), None)


@functools.lru_cache(maxsize=4)
def _symbols(folder: Path) -> frozenset[str]:
    texts = (path.read_text("utf-8", "replace") for path in folder.glob("*.h"))
    return frozenset(name for text in texts for name in _SYMBOL.findall(_COMMENT.sub(" ", text)))
