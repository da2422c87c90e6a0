"""The builder: what a program may have built, what it may not reach while it is built, and what the cache hands out."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stitchcuda.sandbox import digest_seal
from stitchcuda.sandbox.limits import Limits
from stitchcuda.simulator.compile import CompileUnit, compile_unit
from stitchcuda.tools.device import toolkit
from stitchcuda.verify.messages.build_orders import BuildOrder, BuiltLibrary, make_order
from stitchcuda.verify.processes.builder import Builder, SimulatorHome, simulator_home
from stitchcuda.verify.processes.forkserver import ForkServer
from stitchcuda.verify.processes.worker import Worker
from stitchcuda.verify.program.builder_worker import BuilderWorker, shared_folders
from tests.simulator.programs import CACHE, HOME

NVCC = pytest.mark.skipif(toolkit.find_toolkit() is None, reason=toolkit.missing() or "no toolkit")
KERNEL = """#include <cuda_runtime.h>
{head}
__global__ void k(int* x) {{ *x = 7; }}
extern "C" int value() {{ int x = 0; k<<<1, 1>>>(&x); return x; }}
"""


def kernel(head: str = "") -> str:
    return KERNEL.format(head=head)


@pytest.fixture
def program(tmp_path: Path) -> Path:
    folder = tmp_path / "program"
    (folder / "kernels").mkdir(parents=True)
    (folder / "kernels" / "k.cu").write_text(kernel())
    return folder


@pytest.fixture(scope="module")
def cache() -> Path:
    """The simulator's part is that of the simulator's own tests: its runtime is compiled once for all."""
    folder = CACHE / "builder"
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        (folder / "simulator").symlink_to(CACHE)
    return folder


@pytest.fixture(scope="module")
def builder(cache: Path) -> BuilderWorker:
    return BuilderWorker("sim", cache, "sm_90a", HOME)


@pytest.fixture(scope="module")
def forkserver() -> Iterator[ForkServer]:
    one = ForkServer()
    yield one
    one.close()


RUNTIME = BuildOrder(style="runtime", name="stitchsim")


def order(**fields: Any) -> BuildOrder:
    return BuildOrder(**{"style": "tvm", "name": "k", "sources": ["kernels/k.cu"]} | fields)


def said(answer: BuiltLibrary) -> str:
    assert not answer.path, answer
    assert answer.kind == "build", answer
    return answer.failure


def test_a_library_is_built_once_beside_those_that_all_may_read(builder: BuilderWorker, program: Path, cache: Path) -> None:
    answer = builder.build(order(), program)
    assert not any(Path(answer.path).is_relative_to(folder) for folder in shared_folders(cache, HOME))  # it is lent
    assert any(Path(answer.runtime).is_relative_to(folder.resolve()) for folder in shared_folders(cache, HOME))
    shared = builder.build(RUNTIME, program)
    assert shared.shared
    assert any(Path(shared.path).is_relative_to(folder.resolve()) for folder in shared_folders(cache, HOME))
    before = ctypes.CDLL(answer.runtime).stitchsim_launches()
    assert ctypes.CDLL(answer.path).value() == 7
    assert ctypes.CDLL(answer.runtime).stitchsim_launches() == before + 1
    started = time.perf_counter()
    assert builder.build(order(), program) == answer
    assert time.perf_counter() - started < 0.5


def test_the_same_program_in_another_folder_is_not_built_again(builder: BuilderWorker, program: Path, tmp_path: Path) -> None:
    (program / "kernels" / "own.cuh").write_text("#define SEVEN 7\n")
    (program / "kernels" / "k.cu").write_text(kernel('#include "own.cuh"').replace("= 7", "= SEVEN"))
    (program / "kernels" / "b.cc").write_text('#include "own.cuh"\nextern "C" int more() { return SEVEN; }\n')
    both = order(sources=["kernels/k.cu", "kernels/b.cc"])
    first = builder.build(both, program)
    again = builder.build(both, Path(shutil.copytree(program, tmp_path / "copy")))
    assert first.path == again.path
    (program / "kernels" / "own.cuh").write_text("#define SEVEN 8\n")
    assert ctypes.CDLL(builder.build(both, program).path).value() == 8


def test_errors_name_the_programs_own_file_and_line(builder: BuilderWorker, program: Path) -> None:
    (program / "kernels" / "k.cu").write_text(kernel("int broken = nothing;"))
    assert said(builder.build(order(), program)).startswith("kernels/k.cu:2:14: error")
    inline = order(sources=[], inline=True, cuda=[kernel("int broken = nothing;")], functions=[])
    assert "cuda.cu:" in said(builder.build(inline, program))
    assert str(CACHE) not in said(builder.build(inline, program))


def test_inline_code_is_screened_however_it_was_put_together(builder: BuilderWorker, program: Path) -> None:
    split = kernel('int reach() { return mpro' + 'tect(nullptr, 0, 0); }')
    said_of_it = said(builder.build(order(sources=[], inline=True, cuda=[split], functions=[]), program))
    assert "the source itself: line" in said_of_it
    assert "reaches into memory or libraries that are not its own" in said_of_it


def test_inline_sources_of_which_nothing_comes_are_not_kept(program: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"             # of its own: others build at the same time
    cache.mkdir()
    (cache / "simulator").symlink_to(CACHE)
    builder = BuilderWorker("sim", cache, "sm_90a", HOME)
    for text in (kernel("int broken = gone;"), kernel('void f() { asm volatile("y"); }')):
        assert not builder.build(order(sources=[], inline=True, cuda=[text], functions=[]), program).path
    assert os.listdir(cache / "inline") == []
    assert builder.build(order(sources=[], inline=True, cuda=[kernel()], functions=[]), program).path
    assert len(os.listdir(cache / "inline")) > 0


def test_what_cannot_run_here_is_no_error_of_the_program(builder: BuilderWorker, program: Path) -> None:
    (program / "kernels" / "k.cu").write_text(kernel('void f() { asm volatile("x"); }'))
    answer = builder.build(order(), program)
    assert (answer.kind, answer.construct, answer.file, answer.line) == ("refused", "inline PTX", "kernels/k.cu", 2)


@pytest.mark.parametrize("style", ["tvm", pytest.param("torch", marks=pytest.mark.long)])
def test_what_cannot_run_in_an_inline_source_is_named_where_its_author_wrote_it(
    builder: BuilderWorker, program: Path, style: str
) -> None:
    text = kernel('void f() { asm volatile("x"); }')
    (program / "model_new.py").write_text(f'CPP = "int value();"\nCUDA = r"""{text}"""\n')
    inline = order(style=style, sources=[], inline=True, cpp=["int value();"], cuda=[text], functions=[])
    answer = builder.build(inline, program)
    assert (answer.kind, answer.construct, answer.file, answer.line) == ("refused", "inline PTX", "model_new.py", 3)
    (program / "model_new.py").write_text("CUDA = made()\n")
    assert (builder.build(inline, program).file, answer.line) == ("the source given to load_inline('k')", 3)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"name": "k; touch x"}, "no name for a library"),
        ({"name": "../k"}, "no name for a library"),
        ({"name": "-o"}, "no name for a library"),
        ({"name": "k k", "style": "torch"}, "no name for a library"),
        ({"sources": ["/etc/passwd"]}, "outside of the program"),
        ({"sources": ["../../../etc/passwd"]}, "outside of the program"),
        ({"sources": ["kernels/link.cu"]}, "outside of the program"),
        ({"sources": ["kernels/$(touch x).cu"]}, "no name for a source file"),
        ({"sources": ["kernels/pipe.cu"]}, "cannot read kernels/pipe.cu"),
        ({"sources": ["kernels/blob.o"]}, "no name for a source file"),
        ({"sources": []}, "no sources"),
        ({"texts": [["../x.cu", ""]]}, "no name for a source file"),
        ({"texts": [["`id`.cu", ""]]}, "no name for a source file"),
        ({"cuda_flags": ["-DX=$(touch x)"]}, "is not one that a program may use"),
        ({"cflags": ["-fplugin=x.so"]}, "is not one that a program may use"),
        ({"cflags": ["-include", "/etc/passwd"]}, "is not one that a program may use"),
        ({"ldflags": ["-Wl,-rpath,/tmp"]}, "outside of the toolkit"),
        ({"includes": ["/etc"]}, "outside of the program"),
        ({"sources": [], "inline": True, "cuda": ["x"], "functions": [["f); } evil(", ""]]}, "no name for a function"),
    ],
)
def test_hostile_orders(builder: BuilderWorker, program: Path, changed: dict[str, Any], expected: str) -> None:
    (program / "kernels" / "link.cu").symlink_to("/etc/passwd")
    os.mkfifo(program / "kernels" / "pipe.cu")
    (program / "kernels" / "blob.o").write_bytes(b"\x7fELF")
    assert expected in said(builder.build(order(**changed), program))
    assert not (program / "x").exists()


class Unasked:
    """A builder that nobody may ask."""

    def build(self, order: BuildOrder, root: Path | None, seconds: float) -> BuiltLibrary:
        pytest.fail("it is asked")

    def find_line(self, order: BuildOrder, root: Path | None, offset: int) -> str:
        pytest.fail("it is asked")


@pytest.mark.parametrize("fields", [{"cflags": "-O3"}, {"unknown": 1}, {"style": "cmake"}, [], "k", None, {"name": {"a": 1}}])
def test_an_order_that_cannot_be_understood(forkserver: ForkServer, tmp_path: Path, fields: object) -> None:
    """It does not reach the builder."""
    given = order().model_dump(mode="json") | fields if isinstance(fields, dict) else fields
    with Worker(forkserver, "program", tmp_path, "sim", Limits(), builder=Unasked()) as worker:
        assert worker._build(given, 1.0).failure == "the order to build cannot be understood"
        assert worker.builds == []


SECRET = "the_password_is_swordfish"


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    (tmp_path / "private.h").write_text(f"{SECRET}\n")
    return tmp_path / "private.h"


@pytest.mark.parametrize(
    "head",
    [
        '#include "{path}"',
        "#include <{path}>",
        '#include "../../private.h"',
        "%:include <{path}>",
        '#include/**/"{path}"',
        '#define WHERE "{path}"\n#include WHERE',
        '#inc\\\nlude "{path}"',
        '#include "linked.h"',
        'const unsigned char data[] = {{\n#embed "{path}"\n}};',
        '#pragma GCC system_header\n#include "{path}"',
        '#if __has_include("{path}")\n#error found it\n#endif\n#include "{path}"',
    ],
)
@pytest.mark.parametrize("suffix", [".cu", ".cc"])
def test_no_private_file_is_taken_in(builder: BuilderWorker, program: Path, secret: Path, head: str, suffix: str) -> None:
    """Nothing of it shows in the answer, whatever the source asks for; nor whether it is there."""
    (program / "kernels" / "linked.h").symlink_to(secret)
    head = head.format(path=secret)
    (program / "kernels" / f"s{suffix}").write_text(kernel(head) if suffix == ".cu" else head)
    told = said(builder.build(order(sources=[f"kernels/s{suffix}"]), program))
    assert SECRET not in told
    assert "found it" not in told
    assert "error" in told


@pytest.mark.parametrize("text", ['".incbin \\"{path}\\""', '".inc" "bin \\"{path}\\""', '".include \\"{path}\\""'])
@NVCC
def test_the_assembler_reads_no_private_file(program: Path, secret: Path, tmp_path: Path, text: str) -> None:
    """Host code for a GPU may hold assembler, whose directives no text search finds for certain."""
    (program / "kernels" / "s.cc").write_text(f"asm({text.format(path=secret)});" + '\nextern "C" int value() { return 1; }\n')
    builder = BuilderWorker("cuda", tmp_path / "cache", "sm_90a")
    told = said(builder.build(order(sources=["kernels/s.cc"]), program))
    assert SECRET not in told


def test_a_changed_library_is_built_again(builder: BuilderWorker, program: Path, tmp_path: Path) -> None:
    (program / "kernels" / "k.cu").write_text(kernel(f"// {tmp_path}"))
    path = Path(builder.build(order(), program).path)
    path.write_bytes(b"\x7fELF evil")
    answer = builder.build(order(), program)
    assert answer.path == str(path)
    assert any(path.name in note and "had been changed" in note for note in answer.notes)
    assert ctypes.CDLL(answer.path).value() == 7
    assert builder.build(order(), program).notes == []


def test_a_changed_object_is_compiled_again(tmp_path: Path) -> None:
    unit = CompileUnit(tmp_path / "f.cpp", "int f() { return 1; }\n", ("-O0",))
    made = compile_unit(unit, tmp_path)
    good = made.read_bytes()
    made.write_bytes(b"\x7fELF evil")
    assert compile_unit(unit, tmp_path) == made
    assert made.read_bytes() == good


def test_an_inline_source_in_the_cache_is_what_was_ordered(builder: BuilderWorker, program: Path, cache: Path) -> None:
    inline = order(sources=[], inline=True, cuda=[kernel()], functions=[])
    assert builder.build(inline, program).path
    for file in (cache / "inline").rglob("cuda.cu"):
        file.write_text("#error not what was ordered\n")
    assert builder.build(inline, program).path


def test_orders_side_by_side(program: Path, tmp_path: Path, cache: Path) -> None:
    (program / "kernels" / "k.cu").write_text(kernel(f"// {tmp_path}"))
    builders = [BuilderWorker("sim", cache, "sm_90a", HOME) for _ in range(2)]
    answers: list[BuiltLibrary] = []
    threads = [threading.Thread(target=lambda one=one: answers.append(one.build(order(), program))) for one in builders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({answer.path for answer in answers}) == 1
    assert digest_seal.state(Path(answers[0].path)) == "intact"


def test_a_builder_that_is_killed_is_replaced(forkserver: ForkServer, program: Path, tmp_path: Path, cache: Path) -> None:
    started: list[Worker] = []

    def start() -> Worker:
        started.append(Worker(forkserver, "builder", tmp_path, "sim", Limits()))
        return started[-1]

    (program / "kernels" / "k.cu").write_text(kernel(f"// {tmp_path}\n" + "#include <map>\n#include <regex>"))
    one = Builder(start, cache=cache, arch="sm_90a", home=SimulatorHome(place=HOME))

    def kill() -> None:
        while not started:
            time.sleep(0.01)
        time.sleep(0.3)                    # it compiles for seconds
        os.kill(started[0].pid, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    answer = one.build(order(), program, 60.0)
    killer.join()
    assert len(started) == 2
    assert Path(answer.path).is_file()
    again = one.build(order(), program, 60.0)
    assert again.path == answer.path
    answer = one.build(order(cflags=["-DOTHER"], cuda_flags=["-DOTHER"]), program, 0.05)
    assert (answer.kind, "did not finish compiling k" in answer.failure) == ("build", True)
    one.close()


@pytest.mark.more
def test_without_a_home_the_cache_serves_and_each_worker_says_so(forkserver: ForkServer, tmp_path: Path, cache: Path) -> None:
    home = simulator_home(Path("/proc/nowhere"))
    assert home.place is None
    one = Builder(lambda: Worker(forkserver, "builder", tmp_path, "sim", Limits()), cache=cache, arch="sm_90a", home=home)
    answer = one.build(RUNTIME, tmp_path, 60.0)
    one.close()
    assert all(Path(path).is_relative_to(shared_folders(cache)[0].resolve()) for path in (answer.path, answer.runtime))
    assert answer.notes == [
        "the simulator's libraries are built anew in this cache: /proc/nowhere cannot be used (no such file or directory)"
    ]


@pytest.mark.parametrize("given", ["kernels/k.cu", "{program}/kernels/k.cu", "kernels/../kernels/k.cu"])
def test_a_source_is_named_from_the_programs_folder(program: Path, given: str) -> None:
    named = {"sources": [given.format(program=program)]}
    ordered = make_order("k", "torch", named, program, skip=False)
    assert (ordered.sources, ordered.texts) == ((str(program / "kernels/k.cu"),), ())


@pytest.mark.long
@pytest.mark.timeout(600)
@NVCC
def test_a_torch_extension_for_a_gpu_is_compiled_and_linked(program: Path, tmp_path: Path) -> None:
    """Without a GPU nothing of it can be loaded; with a CPU build of torch it is linked against less."""
    cuda = """__global__ void k(float* x) { x[threadIdx.x] *= 2; }
    torch::Tensor twice(torch::Tensor x) { k<<<1, 32>>>(x.data_ptr<float>()); return x; }"""
    wanted = order(style="torch", name="twice", sources=(), inline=True, cpp=["torch::Tensor twice(torch::Tensor);"],
                   cuda=[cuda], functions=[("twice", "twice")], cuda_flags=["-O3", "--use_fast_math"])  # fmt: skip
    builder = BuilderWorker("cuda", tmp_path / "cache", "sm_90a")
    answer = builder.build(wanted, program)
    assert b"PyInit_twice" in Path(answer.path).read_bytes()
    broken = wanted.model_copy(update={"cuda": (cuda.replace("*= 2", "*= two"),)})
    assert said(builder.build(broken, program)).startswith("cuda.cu(4): error")
