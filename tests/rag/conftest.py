"""Indexes for tests: one of this machine's real headers, made once for all tests and runs, and small ones of our own words."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stitchcuda.rag import building, lookup, playbook_pages
from stitchcuda.rag.index import Docs, open_docs
from stitchcuda.rag.sources import discover
from stitchcuda.tools.build import libraries
from stitchcuda.tools.device import toolkit

ROOT = Path(__file__).resolve().parents[2]
LT = """
/* A licence. */
#pragma once
#include "cublas_api.h"
#define CUBLASWINAPI
#define FOR_BOTH static __host__ __device__ inline
#if defined(__cplusplus)
extern "C" {
#endif

/** Multiplies two small matrices of ours, and nothing else.
 *
 * \\retval     CUBLAS_STATUS_INVALID_VALUE     when two shapes do not fit
 * \\retval     CUBLAS_STATUS_SUCCESS           when all went well
 */
cublasStatus_t CUBLASWINAPI cublasLtMatmul(cublasLtHandle_t lightHandle,
                                           const void* alpha, /* host or device pointer */
                                           const void* A,
                                           cudaStream_t stream);

/** What happens behind a product */
typedef enum {
  /** Nothing happens. */
  CUBLASLT_EPILOGUE_DEFAULT = 1,

  /** First the bias is added, then comes GELU
   */
  CUBLASLT_EPILOGUE_GELU_BIAS = (CUBLASLT_EPILOGUE_GELU | CUBLASLT_EPILOGUE_BIAS),
} cublasLtEpilogue_t;

/* Rows of a matrix */
FOR_BOTH int cublasLtRows(int count = 1);
#if defined(__cplusplus)
}
#endif
"""
API = """
#define CUBLAS_VER_MAJOR 12
#define CUBLAS_VER_MINOR 8
#define CUBLAS_VER_PATCH 4
typedef enum { CUBLAS_STATUS_SUCCESS = 0, /* all is well */ CUBLAS_STATUS_INVALID_VALUE = 7 } cublasStatus_t;
CUBLASAPI cublasStatus_t cublasSgemm_v2(cublasHandle_t handle, int m);
"""


@pytest.fixture(scope="session")
def real() -> Iterator[Docs]:
    """The index of names and words over this machine's real headers."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("STITCHCUDA_DOCS", os.path.join(tempfile.gettempdir(), f"stitchcuda-docs-tests-{os.getuid()}"))
        building.build(model=None)
        docs, notes = open_docs(discover().place)
    assert notes == []
    yield docs
    docs.close()


@pytest.fixture
def asked(real: Docs, monkeypatch: pytest.MonkeyPatch) -> Docs:
    """The same, as what a session asks."""
    monkeypatch.setattr(lookup, "of_this_machine", lambda: lookup.Opened(real, ()))
    return real


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The include folder of a toolkit of our own with this machine's compiler, and an empty place for indexes."""
    kit = toolkit.find_toolkit()
    assert kit is not None
    nvcc = tmp_path / "cuda/bin/nvcc"
    nvcc.parent.mkdir(parents=True)
    nvcc.write_text(f'#!/bin/sh\nexec {kit.nvcc} "$@"\n')
    nvcc.chmod(nvcc.stat().st_mode | stat.S_IXUSR)
    include = tmp_path / "cuda/include"
    (include / "cub").mkdir(parents=True)
    (tmp_path / "cuda/lib64").mkdir()
    for library in ("cublas", "cublasLt"):
        (tmp_path / f"cuda/lib64/lib{library}.so").touch()
    headers = {
        "cuda_runtime.h": "/** \\brief Says nothing */\nvoid cudaNothing(void);\n",
        "cublas_api.h": API,
        "cublasLt.h": LT,
        "cublas_v2.h": "#define cublasSgemm cublasSgemm_v2\n",
        "cublas.h": "void cublasSgemm(char transa);  // as it was before handles\n",
        "cub/version.cuh": "#define CUB_VERSION 1\n",
    }
    for name, text in headers.items():
        (include / name).write_text(text)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "cuda"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("STITCHCUDA_DOCS", str(tmp_path / "docs"))
    only_these(tmp_path / "cuda", monkeypatch.setattr)
    lookup.forget()
    yield include
    lookup.forget()


def only_these(root: Path, put: Callable[[object, str, object], None] = setattr) -> None:
    """No libraries but those of one toolkit, not those of Python's packages; and one page of the playbook."""
    real, page = libraries.places, playbook_pages.pages()["split-k"]

    def places(kit: toolkit.Toolkit) -> libraries.Places:
        return real(kit).model_copy(update={"variables": {}, "toolkit": (root,), "packages": (), "system": (root,)})

    put(libraries, "places", places)
    put(playbook_pages, "pages", lambda: {"split-k": page})


def run(root: Path, code: str) -> subprocess.Popen[str]:
    """Code in a process of its own that sees the same as the test."""
    prelude = f"import os, pathlib; from tests.rag.conftest import only_these; only_these(pathlib.Path({str(root)!r})); "
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", prelude + code]
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
