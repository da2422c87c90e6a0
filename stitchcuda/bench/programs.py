"""Reads sets of programs that exist, each with its reference: folders, tables, KernelBench's runs, sessions of a workspace.

Programs are copied as they are; nothing is imported, built or run here.
Where to look next: `bench/judging.py` (who judges them), `bench/problems.py` (sets of references).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, get_args

from stitchcuda.bench.problems import choose, digest, file_name, levels_folder, read_rows, text_in, write_text
from stitchcuda.bench.work_folder import is_work_folder, program_of
from stitchcuda.errors import BadInput
from stitchcuda.sessions.session import sessions
from stitchcuda.state import Record

Kind = Literal["pairs", "jsonl", "kernelbench", "sessions"]
KINDS: tuple[Kind, ...] = get_args(Kind)
_REFERENCES = ("reference.py", "model.py")  # beside a program: ours, and those of CUDA Agent's work folders
_PROGRAMS = ("program", "program.py", "model_new.py")
_REFERENCE_FIELDS = ("reference", "ref_code")
_PROGRAM_FIELDS = ("program", "custom_code")
_CLAIM_FIELDS = ("claimed", "speedup", "score_default")
_SAMPLE = re.compile(r"level_(\d+)_problem_(\d+)_sample_(\d+)_kernel\.py")


class ExistingProgram(Record):
    """A program and its reference. `reference` is None where it could not be found: `why` says so."""

    name: str
    program: Path
    reference: Path | None
    claimed: float | None = None           # the speed-up over eager that its author names
    why: str = ""


def read_pairs(
    kind: str, path: Path, into: Path, *, references: Path | None = None, ids: str | None = None
) -> list[ExistingProgram]:
    """Returns the programs of a set, in its order.

    `kind`: one of KINDS. `path`: "pairs": a folder of folders that hold reference.py (or model.py) and a program, such as work
    folders of CUDA Agent, or one of these; "jsonl": a table with the texts of both in each line, such as CUDA-L1 publishes;
    "kernelbench": a run's folder of
    programs as its scripts write them, with `references`, the checkout; "sessions": a workspace. Texts are written to the
    folder `into`. `ids`: which ones, by the number of their problem, or by place (from 1) where names have none. Raises
    `BadInput`.
    """
    if kind not in KINDS:
        raise BadInput(f"{kind} is no source of programs: give {', '.join(KINDS[:-1])} or {KINDS[-1]}")
    if (references is None) == (kind == "kernelbench"):
        needed = "needs --references, a copy of KernelBench" if kind == "kernelbench" else "has its references beside it"
        raise BadInput(f"a set of {kind} {needed}")
    if kind == "jsonl":
        found = list(_in_table(path, into))
    elif not path.is_dir():
        raise BadInput(f"{path} is no folder: give the folder of the programs")
    elif kind == "pairs":
        found = list(_in_folders(path, into))
    elif kind == "sessions":
        found = list(_of_sessions(path))
    else:
        assert references is not None
        found = list(_of_kernelbench(path, references))
    if not found:
        raise BadInput(f"{path} holds no program of the form that {kind!r} names; see docs/benchmarks.md")
    return choose(found, ids, path)


def _in_folders(path: Path, into: Path) -> Iterator[ExistingProgram]:
    folders = [path] if is_work_folder(path) else sorted(child for child in path.iterdir() if child.is_dir())
    for folder in folders:
        reference = next((folder / name for name in _REFERENCES if (folder / name).is_file()), None)
        program = next((folder / name for name in _PROGRAMS if (folder / name).exists()), None)
        if program is None:
            continue
        if is_work_folder(folder):
            program = program_of(folder, into / f"{file_name(folder.name)}-{digest(*map(str, _contents(folder)))}")
        elif program.name == "model_new.py" and (folder / "kernels").is_dir():
            program = folder               # a program's folder with the reference in it
        why = "" if reference else f"{folder} has no reference.py"
        yield ExistingProgram(name=file_name(folder.name), program=program.resolve(), reference=reference, why=why)


def _contents(folder: Path) -> Iterator[bytes]:
    for file in sorted(file for file in folder.rglob("*") if file.is_file()):
        yield file.read_bytes()


def _in_table(path: Path, into: Path) -> Iterator[ExistingProgram]:
    for number, row in read_rows(path):
        reference, program = text_in(row, _REFERENCE_FIELDS), text_in(row, _PROGRAM_FIELDS)
        level, task = row.get("level_id"), row.get("task_id")
        name = file_name(str(row.get("name") or (f"level{level}-{task}" if level is not None else number)))
        if program is None:                # published tables have lines without a program
            continue
        folder = into / f"{name}-{digest(reference, program)}"
        files = {"reference": folder / "reference.py", "program": folder / "program.py"}
        for which, text in (("reference", reference), ("program", program)):
            if text is not None:
                write_text(files[which], text, f"{path} line {number}")
        yield ExistingProgram(
            name=name, program=files["program"].resolve(), reference=files["reference"].resolve() if reference else None,
            claimed=_claim(row), why="" if reference else f"{path} line {number} has no reference",
        )  # fmt: skip


def _claim(row: dict[str, object]) -> float | None:
    value = next((row[field] for field in _CLAIM_FIELDS if isinstance(row.get(field), int | float)), None)
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def _of_kernelbench(path: Path, checkout: Path) -> Iterator[ExistingProgram]:
    samples = ((_SAMPLE.fullmatch(file.name), file) for file in path.iterdir())
    for (level, problem, sample), file in sorted((tuple(map(int, match.groups())), file) for match, file in samples if match):
        place = levels_folder(checkout, level)
        reference = next(iter(sorted(place.glob(f"{problem}_*.py"))), None)
        stem = reference.stem if reference else str(problem)
        why = "" if reference else f"{place} has no problem {problem}"
        yield ExistingProgram(
            name=file_name(f"level{level}-{stem}-sample{sample}"), program=file.resolve(),
            reference=reference.resolve() if reference else None, why=why,
        )  # fmt: skip


def _of_sessions(path: Path) -> Iterator[ExistingProgram]:
    for session in sessions(path):
        if program := session.program:
            reference = session.home.prepared(session.record) / session.record.reference_name
            yield ExistingProgram(name=session.name, program=program, reference=reference, claimed=session.outcome().speedup)
