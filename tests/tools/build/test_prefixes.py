"""Headers that the host's compiler has read before: the same object, and the whole text wherever anything is odd."""

from __future__ import annotations

import errno
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from stitchcuda.sandbox import command, digest_seal
from stitchcuda.tools.build import prefixes
from stitchcuda.tools.build.prefixes import Prefixes, split

OWN = (Path("/program"),)
HEADERS = '# 1 "/program/a.cu"\n#pragma GCC diagnostic push\n# 1 "/usr/include/math.h" 1\nint used();\n# 2\nint other();\n'
PROGRAM = '# 7 "/program/a.cu"\nint mine() { return used(); }\n'
LINE = "g++ -std=c++17 -O2 -fPIC -c -x c++ UNIT -o OUT"


@pytest.fixture(autouse=True)
def _all_is_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefixes, "WORTH", 20)


class Runs:
    """Runs what it is told, and remembers it."""

    def __init__(self) -> None:
        self.orders: list[str] = []

    def __call__(self, order: Sequence[str], folder: Path, read: Sequence[Path]) -> command.Finished:
        self.orders.append(order[-1])
        return command.run(order, seconds=60, cwd=folder, read=(folder, *read), write=(folder,))

    def kinds(self) -> list[str]:
        return ["header" if "c++-header" in one else "rest" for one in self.orders]


def compiled(store: Prefixes, scratch: Path, text: str) -> Path | None:
    """The object, if a kept header was of use."""
    scratch.mkdir()
    (scratch / "a.cudafe1.cpp").write_text(text)
    line = LINE.replace("UNIT", str(scratch / "a.cudafe1.cpp")).replace("OUT", str(scratch / "made.o"))
    done = store.compiled("export LC_ALL=C", line, scratch)
    assert (scratch / "made.o").exists() == (done is not None)
    return scratch / "made.o" if done else None


def code(made: Path) -> str:
    said = subprocess.run(["objdump", "-d", "--no-show-raw-insn", str(made)], capture_output=True, text=True, check=True)
    return said.stdout.partition("Disassembly")[2]


def test_what_is_of_headers_ends_where_the_program_begins() -> None:
    prefix, rest = split(HEADERS + PROGRAM, OWN)
    assert prefix == HEADERS.partition("\n")[2]
    assert rest == PROGRAM
    assert split(HEADERS, OWN) == ("", HEADERS)
    beside = '# 1 "../header.cuh"\nint x;\n'
    assert split(HEADERS + beside + PROGRAM, OWN)[1] == beside + PROGRAM
    assert split(HEADERS + PROGRAM, ()) == ("", HEADERS + PROGRAM)


def test_the_third_time_is_the_second_reading_of_nothing(tmp_path: Path) -> None:
    run = Runs()
    store = Prefixes(tmp_path / "store", "gcc 1", OWN, run)
    assert compiled(store, tmp_path / "first", HEADERS + PROGRAM) is None
    assert run.orders == []
    other = PROGRAM.replace("mine", "second")
    made = compiled(store, tmp_path / "second", HEADERS + other)
    assert run.kinds() == ["header", "rest"]
    third = compiled(store, tmp_path / "third", HEADERS + other)
    assert run.kinds() == ["header", "rest", "rest"]
    assert made
    assert third
    plain = tmp_path / "plain.cpp"
    plain.write_text(HEADERS + other)
    subprocess.run(shlex.split(LINE.replace("UNIT", str(plain)).replace("OUT", str(tmp_path / "plain.o"))), check=True)
    assert code(made) == code(third) == code(tmp_path / "plain.o") != ""
    newer = Prefixes(tmp_path / "store", "gcc 2", OWN, run)
    assert compiled(newer, tmp_path / "newer", HEADERS + other) is None


def test_a_mistake_is_told_by_who_reads_the_whole_text(tmp_path: Path) -> None:
    run = Runs()
    store = Prefixes(tmp_path / "store", "gcc 1", OWN, run)
    for number in range(2):
        assert compiled(store, tmp_path / f"broken{number}", HEADERS + PROGRAM.replace("used", "nothing")) is None
    assert run.kinds() == ["header", "rest"]
    assert compiled(store, tmp_path / "sound", HEADERS + PROGRAM)


def test_text_that_ends_in_the_middle_is_read_once_and_never_again(tmp_path: Path) -> None:
    run = Runs()
    store = Prefixes(tmp_path / "store", "gcc 1", OWN, run)
    for number in range(4):
        assert compiled(store, tmp_path / str(number), HEADERS + 'extern "C" {\n' + PROGRAM + "}\n") is None
    assert run.kinds() == ["header"]


@pytest.mark.parametrize("name", ["prefix.h", "prefix.h.gch"])
def test_what_was_changed_in_the_cache_is_made_again(tmp_path: Path, name: str) -> None:
    run = Runs()
    store = Prefixes(tmp_path / "store", "gcc 1", OWN, run)
    for number in range(2):
        compiled(store, tmp_path / str(number), HEADERS + PROGRAM)
    (kept,) = (tmp_path / "store").glob(f"*/kept/{name}")
    kept.write_bytes(kept.read_bytes()[:-10] + b"0123456789")
    digest_seal.notes()
    assert compiled(store, tmp_path / "after", HEADERS + PROGRAM)
    # and nothing is left for others
    assert digest_seal.notes() == (f"{name} in the cache had been changed and was built again",)
    assert run.kinds() == ["header", "rest", "header", "rest"]


def test_the_newest_few_are_kept(tmp_path: Path) -> None:
    run = Runs()
    store = Prefixes(tmp_path / "store", "gcc 1", OWN, run)
    for number in range(prefixes.KEPT + 1):
        for turn in range(2):
            compiled(store, tmp_path / f"{number}{turn}", HEADERS.replace("other", f"other{number}") + PROGRAM)
    texts = {place.read_text() for place in (tmp_path / "store").glob("*/kept/prefix.h")}
    assert len(texts) == prefixes.KEPT
    assert not any("other0" in text for text in texts)
    assert not list((tmp_path / "store").glob("reading-*"))


def test_what_gcc_would_forget_is_not_kept() -> None:
    for sound in ("", "#pragma pack(push, 1)\n#pragma pack(2)\n#pragma pack(pop)\n", "#pragma GCC visibility push(default)\n"
                  "int x;\n#pragma GCC visibility pop\n", "#pragma GCC push_options\n#pragma GCC target(\"avx\")\n"
                  "#pragma GCC pop_options\n", "#pragma pack()\n"):  # fmt: skip
        assert prefixes.balanced(sound), sound
    for odd in ("#pragma pack(1)\n", "# pragma pack(push,1)\n", "#pragma GCC visibility push(hidden)\n", "#pragma pack(pop)\n"
                "#pragma pack(push)\n", "#pragma GCC optimize(\"O0\")\n", "#pragma GCC poison x\n"):  # fmt: skip
        assert not prefixes.balanced(odd), odd


def test_packing_that_a_header_leaves_open_holds_for_the_program(tmp_path: Path) -> None:
    run = Runs()
    store = Prefixes(tmp_path / "store", "gcc 1", OWN, run)
    text = HEADERS + "#pragma pack(1)\n" + PROGRAM + "struct S { char c; int i; };\nint size() { return sizeof(S); }\n"
    assert [compiled(store, tmp_path / str(number), text) for number in range(3)] == [None] * 3
    assert run.orders == []


def test_warnings_are_those_of_the_whole_text(tmp_path: Path) -> None:
    run = Runs()
    store = Prefixes(tmp_path / "store", "gcc 1", OWN, run)
    quiet = '# 1 "/usr/include/quiet.h"\n#pragma GCC diagnostic ignored "-Wunused-local-typedefs"\n'
    quiet += HEADERS.partition("\n")[2]
    text = '# 1 "/program/a.cu"\n' + quiet + PROGRAM + "int f() { typedef int unused; return 1; }\n"
    for number in range(3):
        (scratch := tmp_path / str(number)).mkdir()
        (scratch / "a.cudafe1.cpp").write_text(text)
        line = LINE.replace("UNIT", "a.cudafe1.cpp").replace("OUT", "made.o").replace("-O2", "-O2 -Wall -Werror")
        done = store.compiled("export LC_ALL=C", line.replace("made.o", str(scratch / "made.o")), scratch)
    assert done is not None
    assert done.output == ""


def test_a_program_s_own_part_of_cuda_is_read(tmp_path: Path) -> None:
    (tmp_path / "program" / "crt").mkdir(parents=True)
    store = Prefixes(tmp_path / "store", "gcc 1", (*OWN, tmp_path / "program"), Runs())
    assert [compiled(store, tmp_path / str(number), HEADERS + PROGRAM) for number in range(3)] == [None] * 3


def test_a_compiler_that_was_killed_says_nothing_of_the_text(tmp_path: Path) -> None:
    said = ["g++: fatal error: Killed signal terminated program cc1plus\ncompilation terminated."]

    def killed(order: Sequence[str], folder: Path, read: Sequence[Path]) -> command.Finished:
        return command.Finished(1, said.pop(), 1.0) if said else run(order, folder, read)

    run = Runs()
    store = Prefixes(tmp_path / "store", "gcc 1", OWN, killed)
    found = [compiled(store, tmp_path / str(number), HEADERS + PROGRAM) for number in range(3)]
    assert [one is not None for one in found] == [False, False, True]


def test_without_room_the_whole_text_is_read(tmp_path: Path) -> None:
    def full(order: Sequence[str], folder: Path, read: Sequence[Path]) -> command.Finished:
        raise OSError(errno.ENOSPC, "No space left on device")

    store = Prefixes(tmp_path / "store", "gcc 1", OWN, full)
    assert [compiled(store, tmp_path / str(number), HEADERS + PROGRAM) for number in range(3)] == [None] * 3
    (tmp_path / "file").write_text("")
    blocked = Prefixes(tmp_path / "file" / "store", "gcc 1", OWN, Runs())
    assert compiled(blocked, tmp_path / "blocked", HEADERS + PROGRAM) is None


def test_a_source_called_as_our_own_file_is_left_alone(tmp_path: Path) -> None:
    store = Prefixes(tmp_path / "store", "gcc 1", OWN, Runs())
    for number in range(2):
        compiled(store, tmp_path / str(number), HEADERS + PROGRAM)
    (scratch := tmp_path / "named").mkdir()
    unit = scratch / "without_headers.cudafe1.cpp"
    unit.write_text(broken := HEADERS + PROGRAM.replace("used", "nothing"))
    assert store.compiled("", LINE.replace("UNIT", unit.name).replace("OUT", str(scratch / "made.o")), scratch) is None
    assert unit.read_text() == broken
