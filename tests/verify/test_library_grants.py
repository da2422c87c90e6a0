"""A worker can read the libraries that were built for it, and no secret input."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from stitchcuda.sandbox.limits import Limits
from stitchcuda.simulator.build import runtime_library
from stitchcuda.verify.judge import correctness
from stitchcuda.verify.messages.build_orders import BuildOrder, BuiltLibrary
from stitchcuda.verify.processes.worker import Worker, grant_library
from tests.simulator.programs import CACHE
from tests.verify import programs
from tests.verify.judge_parts import Bench

# Files that can be read beside the program's own and those of its scratch folder.
LOOK = '''
def look(own=__file__):
    scratch = os.environ["TMPDIR"]
    found = []
    for folder, _, names in os.walk(os.path.dirname(scratch)):
        for name in names:
            path = os.path.join(folder, name)
            if not path.startswith((scratch, os.path.dirname(own))) and os.access(path, os.R_OK):
                found.append(os.path.relpath(path, os.path.dirname(scratch)))
    return sorted(found)
'''
NOTHING_TO_COME = """seen = look()
        if len(seen) > 1 or any("input" in name or "state" in name for name in seen):
            raise RuntimeError(f"I can read {seen}")"""


INLINE = """
from tvm_ffi.cpp import load_inline
module = load_inline("{name}", cpp_sources="int64_t f(int64_t x) {{ return x; }}", functions=["f"])
if module.f(3) != 3 or any(os.access(path, os.R_OK) for path in {refused}):
    raise RuntimeError("what was built for others can be read")
"""


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    made = Bench(tmp_path_factory.mktemp("bench"), programs.REFERENCE)
    yield made
    made.close()


def test_a_library_has_one_place_on_a_shelf(tmp_path: Path) -> None:
    shelf, library = tmp_path / "shelf", tmp_path / "k-0123.so"
    shelf.mkdir()
    library.write_bytes(b"x")
    built = BuiltLibrary(path=str(library))
    assert {grant_library(shelf, built).path for _ in range(2)} == {str(shelf / "k-0123.so")}
    assert os.path.samefile(library, shelf / "k-0123.so")


def test_a_worker_sees_the_libraries_that_were_built_for_it(bench: Bench, tmp_path: Path) -> None:
    first, second = (tmp_path / name for name in ("first", "second"))
    for folder in (first, second):
        folder.mkdir()
    with bench.load(programs.model(first, imports=INLINE.format(name="lent_first", refused="[]"))) as one:
        (made,) = (Path(built.path) for _, built in one.worker.builds if not built.shared)
        assert os.listdir(one.worker.libraries) == [made.name]
    assert not one.worker.libraries.exists()
    with bench.load(programs.model(second, imports=INLINE.format(name="lent_second", refused=[str(made)]))) as two:
        assert made.name not in os.listdir(two.worker.libraries)


def test_a_worker_can_load_our_libraries_and_nothing_more(bench: Bench, tmp_path: Path) -> None:
    """Not write to them or beside them, nor lock what builders wait for, nor see what they are linked from."""
    home = bench.home
    library = runtime_library(CACHE, home)
    beside = {
        "read": f"open({str(library)!r}, 'rb').read(4)",
        "write": f"open({str(library)!r}, 'r+b')",
        "seal": f"open({str(library)!r} + '.sha256', 'w')",
        "new": f"open({str(library.parent / 'new.so')!r}, 'w')",
        "rename": f"os.rename({str(library)!r}, {str(library)!r} + '-old')",
        "mode": f"os.chmod({str(library.parent)!r}, 0o777)",
        "lock": f"open({str(home / 'lock')!r})",
        "objects": f"os.listdir({str(home / 'objects')!r})",
        "version": f"os.listdir({str(home)!r})",
    }
    before = {path: path.stat() for path in home.rglob("*")}
    tried = f"""
def able(what):
    try:
        eval(what)
    except OSError:
        return False
    return True

can = [name for name, what in {beside!r}.items() if able(what)]
if [name for name in can if name != "version"] != ["read"]:
    raise RuntimeError(f"I can {{can}}")
"""
    with bench.load(programs.model(tmp_path, imports=tried)) as loaded:
        assert str(library) in [built.runtime for _, built in loaded.worker.builds if built.shared]
    assert {path: path.stat().st_mtime_ns for path in home.rglob("*")} == {
        path: status.st_mtime_ns for path, status in before.items()
    }


def test_a_program_does_not_fill_the_cache(bench: Bench, tmp_path: Path) -> None:
    orders: list[int] = []

    class Counting:
        def build(self, order: BuildOrder, root: Path | None, seconds: float) -> BuiltLibrary:
            orders.append(len(order.cpp[0]))
            return BuiltLibrary(failure="no")

        def find_line(self, order: BuildOrder, root: Path | None, offset: int) -> str:
            return ""

    with Worker(bench._judge.resources.forkserver, "program", tmp_path, "sim", Limits(), builder=Counting()) as worker:
        def ordered(text: str) -> str:
            return worker._build({"style": "tvm", "name": "k", "cpp": [text]}, 1.0).failure

        assert {ordered("a") for _ in range(300)} == {"no"}
        assert len(orders) == 300          # the same again leaves nothing new
        for _ in range(3):
            ordered("b" * (30 << 20) + str(len(orders)))
        assert len(orders) == 302
        said = [ordered(str(number)) for number in range(300)]
    assert said[:197] == ["no"] * 197
    assert "200 builds, with sources of 64 MiB in all" in said[197]
    assert len(set(said[197:])) == 1


def test_no_input_can_be_read_before_it_is_asked_about(bench: Bench, tmp_path: Path) -> None:
    program = programs.model(tmp_path, imports=LOOK, before=NOTHING_TO_COME)
    with bench.load(program) as loaded:
        result = correctness.check(loaded.trial, bench.secret_inputs, 3, final=True)
    assert result.reasons == ()


def test_other_outputs_on_a_second_call_are_a_reason(bench: Bench, tmp_path: Path) -> None:
    program = programs.model(tmp_path, after="if self.calls == 2: return out, out")
    with bench.load(program) as loaded:
        result = correctness.check(loaded.trial, bench.secret_inputs, 1, final=False)
    assert "on a second call with the same inputs, the program returns 2 tensors" in result.reasons[0]
