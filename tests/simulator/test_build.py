"""Builds: never twice, safe side by side, and sensitive to everything that matters."""

from __future__ import annotations

import ctypes
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from stitchcuda.errors import BadInput, StitchError
from stitchcuda.simulator.build import build_simulated, runtime_library
from tests.simulator.programs import CACHE, HOME

SOURCE = """#include "size.h"
__global__ void k(int* x) { *x = SIZE; }
extern "C" int value() { int x = 0; k<<<1, 1>>>(&x); return x; }
"""


def value(library: Path) -> int:
    return int(ctypes.CDLL(str(library)).value())


def test_the_second_build_is_a_look_up(tmp_path: Path) -> None:
    (tmp_path / "size.h").write_text("#define SIZE 3\n")
    (tmp_path / "k.cu").write_text(SOURCE)
    first = build_simulated([tmp_path / "k.cu"], name="k", cache=CACHE, home=HOME)
    start = time.perf_counter()
    again = build_simulated([tmp_path / "k.cu"], name="k", cache=CACHE, home=HOME)
    assert again == first
    assert time.perf_counter() - start < 0.5
    assert value(first) == 3


def test_a_changed_header_or_define_is_another_library(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "size.h").write_text("#ifndef SIZE\n#define SIZE 3\n#endif\n")
    (tmp_path / "k.cu").write_text(SOURCE)

    def build(*defines: str) -> int:
        inner = [tmp_path / "inner"]
        return value(build_simulated([tmp_path / "k.cu"], name="k", cache=CACHE, home=HOME,
                                     include_dirs=inner, flags=[f"-D{define}" for define in defines]))  # fmt: skip

    assert build() == 3
    assert build("SIZE=5") == 5
    (tmp_path / "inner" / "size.h").write_text("#ifndef SIZE\n#define SIZE 44\n#endif\n")
    assert build() == 44


def test_a_changed_header_of_a_binding_is_seen(tmp_path: Path) -> None:
    (tmp_path / "size.h").write_text("#define SIZE 6\n")
    (tmp_path / "k.cc").write_text('#include "size.h"\nextern "C" int value() { return SIZE; }\n')
    assert value(build_simulated([tmp_path / "k.cc"], name="k", cache=CACHE, home=HOME)) == 6
    (tmp_path / "size.h").write_text("#define SIZE 77\n")
    assert value(build_simulated([tmp_path / "k.cc"], name="k", cache=CACHE, home=HOME)) == 77


def test_two_files_may_define_different_device_functions_of_one_name(tmp_path: Path) -> None:
    code = """
__device__ int secret() { return %d; }
__device__ int table[2] = {%d, 0};
__global__ void k_%s(int* x) { *x = secret() + table[0]; }
extern "C" int %s() { int x = 0; k_%s<<<1, 1>>>(&x); return x; }
"""
    (tmp_path / "a.cu").write_text(code % (1, 10, "a", "first", "a"))
    (tmp_path / "b.cu").write_text(code % (2, 20, "b", "second", "b"))
    module = ctypes.CDLL(str(build_simulated([tmp_path / "a.cu", tmp_path / "b.cu"], name="two", cache=CACHE, home=HOME)))
    assert (module.first(), module.second()) == (11, 22)


def test_an_unchanged_kernel_in_another_folder_is_not_built_again(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "k.cu").write_text("#define SIZE 12\n" + SOURCE.split("\n", 1)[1])
    files = [tmp_path / folder / "k.cu" for folder in ("one", "two")]
    first, second = (build_simulated([file], name="k", cache=CACHE, home=HOME) for file in files)
    assert first == second


def test_builders_side_by_side(tmp_path: Path) -> None:
    (tmp_path / "size.h").write_text("#define SIZE 8\n")
    (tmp_path / "k.cu").write_text(SOURCE)
    with ThreadPoolExecutor(4) as pool:
        again = [pool.submit(build_simulated, [tmp_path / "k.cu"], name="k", cache=tmp_path / "c", home=HOME) for _ in range(4)]
        made = [one.result() for one in again]
    assert len(set(made)) == 1
    assert value(made[0]) == 8
    assert not [name for name in os.listdir(made[0].parent) if name.startswith("linking-")]


def test_modules_of_one_process_share_the_count_of_launches(tmp_path: Path) -> None:
    (tmp_path / "size.h").write_text("#define SIZE 1\n")
    (tmp_path / "k.cu").write_text(SOURCE)
    (tmp_path / "l.cu").write_text(SOURCE + "// another\n")
    libraries = [build_simulated([tmp_path / name], name="k", cache=CACHE, home=HOME) for name in ("k.cu", "l.cu")]
    runtime = ctypes.CDLL(str(runtime_library(CACHE, HOME)))
    runtime.stitchsim_launches.restype = ctypes.c_ulong
    before = runtime.stitchsim_launches()
    assert [value(library) for library in libraries] == [1, 1]
    assert runtime.stitchsim_launches() == before + 2


def test_a_missing_or_unreadable_source_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"cannot read .*nowhere.cu: No such file"):
        build_simulated([tmp_path / "nowhere.cu"], name="k", cache=tmp_path)
    (tmp_path / "binary.cu").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadInput, match=r"binary.cu is not UTF-8 text"):
        build_simulated([tmp_path / "binary.cu"], name="k", cache=tmp_path)


def test_without_a_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from stitchcuda.simulator.compile import compiler

    (tmp_path / "k.cu").write_text("int x;\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    compiler.cache_clear()
    try:
        with pytest.raises(StitchError, match=r"found none; install g\+\+"):
            build_simulated([tmp_path / "k.cu"], name="k", cache=tmp_path)
    finally:
        monkeypatch.undo()
        compiler.cache_clear()
