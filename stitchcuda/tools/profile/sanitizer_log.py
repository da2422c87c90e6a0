"""Parses what compute-sanitizer prints (CUDA 11 to 13); equal findings become one with a count.

It parses text and not `--xml`, since a text that was cut off can still be read. Lines that the program prints in between are
ignored; if one looks like the tool's, it gives a finding at worst.
Where to look next: `tools/profile/sanitizer.py` (runs the tool).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from stitchcuda.state import Record
from stitchcuda.tools.profile.source_path import own_path

Tool = Literal["memcheck", "racecheck", "initcheck", "synccheck"]

_HEX, _COUNT, _LINE_NUMBER = r"0x[0-9a-fA-F]{1,16}", r"\d[\d,]{0,18}", r"\d{1,9}"  # no more: a program can print anything
_XYZ = r"\d{1,10}, *\d{1,10}, *\d{1,10}"

_LINE = re.compile(r"^=========(.*)$", re.MULTILINE)
_ACCESS = re.compile(rf"^(Invalid|Uninitialized|Misaligned) (?:(__\w+__) )?(?:memory )?(\w+)(?: of size ({_COUNT}))?")
_BARRIER = re.compile(r"^Barrier error detected\.\s*(.*)$")
_RACE = re.compile(r"^(?:(Error|Warning|Info|Fatal):\s*)?Race reported between (\w+) access at (.+)$", re.IGNORECASE)
_OTHER_ACCESS = re.compile(rf"^and (\w+) access at (.+?)(?: \[({_COUNT}) hazards?\])?$")
_HAZARD = re.compile(r"^(?:(Error|Warning|Info|Fatal):\s*)?(?:\([^)]*\) )?Potential (\w+) hazard detected at (__\w+__) "
                     rf"({_HEX}) in block \(({_XYZ})\)", re.IGNORECASE)  # fmt: skip
_HAZARD_SIDE = re.compile(rf"^(?:Write|Read) Thread \(({_XYZ})\) at (.+)$")
_API = re.compile(r"^Program hit (\w+)(?: \(error \d+\))?(?: due to \"([^\"]*)\")? on CUDA API call to (\w+)")
_HOST = re.compile(r"^(?:Host API (?:uninitialized )?memory access|Uninitialized access at|Host API memory access error)")
_OTHER = re.compile(r"^(?:(?:Error|Warning|Fatal):\s+)?(?:Illegal|Invalid|Missing|Malloc|Free|Double|Stream-ordered)\b")
_AT = re.compile(r"^at (.+)$")
_IN = re.compile(rf"^in (\S+):({_LINE_NUMBER})$")
_BY = re.compile(rf"^by thread \(({_XYZ})\) in block \(({_XYZ})\)")
_ADDRESS = re.compile(rf"^(?:Address|Access (?:at|to)) ({_HEX})(?: is (.+))?$")
_NEAREST = re.compile(r"^and is (.+)$")
_FRAME = re.compile(r"^Device Frame:\s*(.+)$")
_NEW_PLACE = re.compile(rf"^(?P<function>.*?)(?:\+0x[0-9a-f]+)?(?: in (?P<file>\S+):(?P<line>{_LINE_NUMBER}))?$")
_OLD_PLACE = re.compile(rf"^0x[0-9a-f]+(?: in (?:(?P<file>\S+?):(?P<line>{_LINE_NUMBER}):)?(?P<function>.+))?$")
_OLD_FRAME = re.compile(rf"^(?:(?P<file>\S+?):(?P<line>{_LINE_NUMBER}):)(?P<function>.+)$")
_SUMMARY = re.compile(
    rf"^ ?(?:ERROR SUMMARY: ({_COUNT}) errors?+(?! were not printed)|RACECHECK SUMMARY: ({_COUNT}) hazards? displayed)"
)
_SOURCES = (".cu", ".cuh")
_PROBE = "cuGetProcAddress"                # libraries ask for entry points that older drivers do not have

Point = tuple[int, int, int]


class SanitizerFinding(Record):
    """One fault, reported `count` times; thread, block and address are those of the first report."""

    tool: Tool
    kind: str                              # "out of bounds read", "race", "uninitialized read", "barrier", "API error", ...
    severity: Literal["error", "warning", "info"] = "error"
    kernel: str = ""                       # demangled; "" for a call from the host
    thread: Point | None = None
    block: Point | None = None
    space: str = ""                        # global, shared, local
    address: int | None = None
    size: int | None = None                # bytes of the access
    file: str = ""                         # of the line that did it; "" without line information (nvcc -lineinfo)
    line: int | None = None
    text: str = ""                         # the tool's own words, in one sentence
    count: int = 1                         # reports; for a race, hazards

    def __str__(self) -> str:
        place = f" at {self.file}:{self.line}" if self.file else ""
        where = f" in {self.kernel}" if self.kernel else ""
        times = f" ({self.count} times)" if self.count > 1 else ""
        return f"{self.tool}: {self.text}{where}{place}{times}"


class _Place(NamedTuple):
    function: str
    file: str
    line: int | None


def findings(log: str, tool: Tool, root: Path | None = None) -> tuple[SanitizerFinding, ...]:
    """Returns all findings in a log, the most frequent first. Paths under `root` become relative."""
    merged: dict[tuple[object, ...], SanitizerFinding] = {}
    for lines in _reports(log):
        found = _finding(lines, tool, root)
        if found is None:
            continue
        offset = next((line for line in lines[1:] if _AT.match(line)), "") if not found.file else ""
        key = (found.kind, found.severity, found.kernel, found.file, found.line, found.space, found.size, offset)
        same = merged.get(key)
        merged[key] = found if same is None else same.model_copy(update={"count": same.count + found.count})
    return tuple(sorted(merged.values(), key=lambda finding: -finding.count))


def errors(log: str) -> int | None:
    """Returns the number of errors in the tool's summary, added up over processes; None without a summary."""
    counts = [int((found[1] or found[2]).replace(",", "")) for text in _own(log) if (found := _SUMMARY.match(text))]
    return sum(counts) if counts else None


def _own(log: str) -> list[str]:
    return [found.group(1).rstrip() for found in _LINE.finditer(log)]


def _reports(log: str) -> Iterator[list[str]]:
    """Yields the lines of each report: a headline, then its details."""
    report: list[str] = []
    for text in (line.strip() for line in _own(log)):
        if _is_headline(text):
            if report:
                yield report
            report = [text]
        elif report and text:
            report.append(text)
    if report:
        yield report


def _is_headline(text: str) -> bool:
    heads = (_ACCESS, _BARRIER, _RACE, _HAZARD, _API, _HOST, _OTHER)
    return any(head.match(text) for head in heads) and not text.startswith("Uninitialized a")  # "access at": of a copy


def _finding(lines: list[str], tool: Tool, root: Path | None) -> SanitizerFinding | None:
    head, rest = lines[0], lines[1:]
    if found := _RACE.match(head):
        return _race(found, rest, tool, root)
    if found := _HAZARD.match(head):
        return _hazard(found, rest, tool, root)
    places = _places(rest, root)
    # The call stack goes from the faulty line up to the kernel; a line of a source is preferred to one of a header.
    spot = next((place for place in places if place.file.endswith(_SOURCES)), next((p for p in places if p.file), None))
    by = next((match for line in rest if (match := _BY.match(line))), None)
    at = next((match for line in rest if (match := _ADDRESS.match(line))), None)
    nearest = next((match.group(1) for line in rest if (match := _NEAREST.match(line))), "")
    why = (at.group(2) or "") if at else ""
    kind, space, size = _kind(head, why)
    harmless = kind == "API error" and _PROBE in head
    words = ", ".join(part for part in (head.rstrip("."), why, nearest) if part)
    return SanitizerFinding(
        tool=tool,
        kind=kind,
        severity="info" if harmless else "warning" if head.startswith("Warning") else "error",
        kernel=places[-1].function if places else "",
        thread=_point(by.group(1)) if by else None,
        block=_point(by.group(2)) if by else None,
        space=space,
        address=int(at.group(1), 16) if at else None,
        size=size,
        file=spot.file if spot else "",
        line=spot.line if spot else None,
        text=words,
    )


def _kind(head: str, why: str) -> tuple[str, str, int | None]:
    """(kind, address space, bytes) of a headline."""
    if found := _ACCESS.match(head):
        word, space, access, size = found.groups()
        reason = {"Uninitialized": "uninitialized", "Misaligned": "misaligned"}.get(word, "")
        reason = reason or ("misaligned" if "misaligned" in why else "out of bounds" if "bounds" in why else "invalid")
        return f"{reason} {access}", (space or "").strip("_"), _number(size)
    if _BARRIER.match(head):
        return "barrier", "", None
    if _API.match(head):
        return "API error", "", None
    return ("uninitialized copy", "global", None) if _HOST.match(head) else ("other", "", None)


def _race(found: re.Match[str], rest: list[str], tool: Tool, root: Path | None) -> SanitizerFinding:
    severity, access, text = found.groups()
    place = _place(text, root)
    others = [match for line in rest if (match := _OTHER_ACCESS.match(line))]
    accesses = [f"{match.group(1).lower()} at {_spoken(_place(match.group(2), root))}" for match in others]
    sides = list(dict.fromkeys(accesses))  # without repetitions: one line of an unrolled loop is many accesses
    return SanitizerFinding(
        tool=tool,
        kind="race",
        severity=_severity(severity),
        kernel=place.function,
        space="shared",
        file=place.file,
        line=place.line,
        text=f"race between the {access.lower()} at {_spoken(place)} and the {' and the '.join(sides) or 'other access'}",
        count=sum(_number(match.group(3)) or 1 for match in others) or 1,
    )


def _hazard(found: re.Match[str], rest: list[str], tool: Tool, root: Path | None) -> SanitizerFinding:
    severity, kind, space, address, block = found.groups()
    sides = [match for line in rest if (match := _HAZARD_SIDE.match(line))]
    places = [_place(match.group(2), root) for match in sides]
    return SanitizerFinding(
        tool=tool,
        kind="race",
        severity=_severity(severity),
        kernel=places[0].function if places else "",
        thread=_point(sides[0].group(1)) if sides else None,
        block=_point(block),
        space=space.strip("_"),
        address=int(address, 16),
        file=places[0].file if places else "",
        line=places[0].line if places else None,
        text=f"{kind} hazard between {' and '.join(_spoken(place) for place in places) or 'two threads'}",
    )


def _places(rest: list[str], root: Path | None) -> list[_Place]:
    """Returns the place of the fault and those of the device functions that called it, innermost first."""
    places: list[_Place] = []
    for line in rest:
        if found := _AT.match(line) or _FRAME.match(line):
            places.append(_place(found.group(1), root))
        elif (found := _IN.match(line)) and places and not places[-1].file:
            places[-1] = places[-1]._replace(file=own_path(found.group(1), root), line=int(found.group(2)))
    return places


def _place(text: str, root: Path | None) -> _Place:
    """Parses a function, its file and line, in any version's format, without a trailing "[0x520]" or "(name : 0x60)"."""
    text = re.sub(r" \[0x[0-9a-f]+\]$", "", text.strip())
    text = text.partition(" (")[0] if re.search(r" : 0x[0-9a-f]+\)$", text) else text
    found = _OLD_PLACE.match(text) or _OLD_FRAME.match(text) or _NEW_PLACE.match(text)
    assert found is not None               # the last pattern matches any text
    function, file, line = found.group("function") or "", found.group("file") or "", found.group("line")
    return _Place(function.removeprefix("void ").strip(), own_path(file, root), int(line) if line else None)


def _spoken(place: _Place) -> str:
    return f"{place.file}:{place.line}" if place.file else place.function or "an unknown place"


def _severity(word: str | None) -> Literal["error", "warning", "info"]:
    known: dict[str, Literal["error", "warning", "info"]] = {"warning": "warning", "info": "info"}
    return known.get((word or "").lower(), "error")


def _point(text: str) -> Point:
    x, y, z = (int(part) for part in text.split(","))
    return x, y, z


def _number(text: str | None) -> int | None:
    return int(text.replace(",", "")) if text else None
