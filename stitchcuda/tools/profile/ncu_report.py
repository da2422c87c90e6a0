"""Reads Nsight Compute's report files (`.ncu-rep`) into kernel profiles, through NVIDIA's own Python interface.

`ncu-report` from PyPI (seen to work: 2026.3.1; it reads reports of older versions of ncu), else the one that Nsight Compute
brings. It takes a damaged file for an empty or shorter one, so the file's frame is checked here first. Nothing is run.
Where to look next: `tools/profile/report_reader.py` (the same, shut in), `tools/profile/kernel_profile.py` (the records),
`tools/profile/ncu_figures.py` (counters).
"""

from __future__ import annotations

import importlib
import statistics
import struct
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

from stitchcuda import remedies
from stitchcuda.errors import Unavailable
from stitchcuda.tools.build import kernel_names
from stitchcuda.tools.profile import ncu_figures
from stitchcuda.tools.profile.kernel_profile import KernelProfile, RuleResult, SourceLine
from stitchcuda.tools.profile.ncu_command import find_ncu
from stitchcuda.tools.profile.source_path import own_path

Given = TypeVar("Given")
_MAGIC = b"NVR\0"
_MOST_LINES = 8
_FINE, _NO_OPINION = 1, (0, 4)             # MsgType: OK; NONE, and ERROR: the rule itself failed
_SCOPES: dict[int, Literal["kernel", "local"]] = {1: "local", 2: "kernel"}  # SpeedupType
_ASIDE = "could not be found. Collecting it as an additional metric"
_SAMPLES = "smsp__pcsamp_sample_count"
_SAMPLED = "smsp__pcsamp_warps_issue_stalled_"
_INSTRUCTIONS = "inst_executed"


def read(
    report: Path,
    *,
    shares: Mapping[str, float] | None = None,
    origins: Mapping[str, str] | None = None,
    root: Path | None = None,
) -> tuple[KernelProfile, ...]:
    """One profile per kernel of the report, in the order of their share of the call, else as they were launched.

    `shares` (0 to 1) and `origins` go by demangled name, spelled as anybody spells it. Source files under `root`, the program's
    folder, become relative, and their text is read there where the report does not hold it. Raises `Unavailable` where the
    reader is missing, or the file is not a whole report. A report without kernels gives ().
    """
    interface = _interface()
    results = _check_frame(report)
    try:
        context = interface.load_report(str(report))
        profiles = _profiles(context, results, shares or {}, origins or {}, root)
    except Exception as why:               # the interface raises whatever a damaged file makes it stumble over
        raise Unavailable(f"{report} cannot be read as an Nsight Compute report: {why}; profile the kernels again") from why
    return tuple(sorted(profiles, key=lambda profile: -(profile.share or 0.0)))


def _profiles(
    context: Any, results: int, shares: Mapping[str, float], origins: Mapping[str, str], root: Path | None
) -> list[KernelProfile]:
    """Raises ValueError where the interface found fewer than the file's `results`, or a kernel without a name."""
    found = sum(context.range_by_idx(number).num_actions() for number in range(context.num_ranges()))
    if found < results:
        raise ValueError(f"it is damaged, {found} of its {results} results are left")
    launches: dict[str, list[Any]] = {}
    for action in _actions(context):
        mangled = action.name(action.NameBase_MANGLED) or action.name(action.NameBase_DEMANGLED)
        if not mangled:
            raise ValueError("it is damaged, a kernel has no name")
        launches.setdefault(kernel_names.demangled(mangled), []).append(action)
    profiles = []
    for name, actions in launches.items():
        names = (name, str(actions[0].name(actions[0].NameBase_DEMANGLED)))
        given = {"share": _given(shares, names), "origin": _given(origins, names) or ""}
        profiles.append(_profile(name, actions, root).model_copy(update=given))
    return profiles


def _given(known: Mapping[str, Given], names: tuple[str, ...]) -> Given | None:
    """By one of a kernel's names; else by that of the function alone, where only one kernel has it: demanglers differ."""
    exact = next((known[name] for name in names if name in known), None)
    if exact is not None:
        return exact
    alike = [name for name in known if kernel_names.base_name(name) == kernel_names.base_name(names[0])]
    return known[alike[0]] if len(alike) == 1 else None


def missing() -> str:
    """Why reports cannot be read here, with the remedy; "" if they can."""
    try:
        _interface()
    except Unavailable as why:
        return str(why)
    return ""


def _interface() -> Any:
    """The module `ncu_report`: as installed, else from Nsight Compute's own folder."""
    try:
        return importlib.import_module("ncu_report")
    except ImportError as why:
        first = why
    for folder in _beside_ncu():
        sys.path.insert(0, str(folder))
        try:
            return importlib.import_module("ncu_report")
        except ImportError:
            continue                       # built for another Python; the sentence below covers it
        finally:
            sys.path.remove(str(folder))
    remedy = f"install NVIDIA's reader with: {remedies.extra('profile')}"
    raise Unavailable(f"Nsight Compute's reports cannot be read ({first}); {remedy}")


def _beside_ncu() -> Iterator[Path]:
    ncu = find_ncu()
    if ncu is None:
        return
    for home in (ncu.parent, *ncu.resolve().parents[:3], *sorted(ncu.parent.parent.glob("nsight-compute-*"), reverse=True)):
        if (home / "extras" / "python" / "ncu_report.py").is_file():
            yield home / "extras" / "python"


def _check_frame(report: Path) -> int:
    """How many results the file holds, by its frame as NVIDIA documents it (extras/FileFormat): a magic, a header, blocks of a
    header and a payload. ncu writes block by block and no sum: a file that ends between two of them is a shorter report."""
    try:
        data = report.read_bytes()
    except OSError as why:
        raise Unavailable(f"no report of Nsight Compute at {report} ({why.strerror}); profile the kernels again") from why
    if data[:4] != _MAGIC:
        raise Unavailable(f"{report} is no report of Nsight Compute; give the .ncu-rep file that ncu wrote")
    results = 0
    try:
        at = start = 8 + struct.unpack_from("<I", data, 4)[0]
        while at < len(data):
            length = struct.unpack_from("<I", data, at)[0]
            block, payload = _block(data[at + 4 : at + 4 + length])
            results += block
            at += 4 + length + payload
    except (struct.error, IndexError):
        at = start = -1
    if at != len(data) or at == start:
        raise Unavailable(f"{report} is cut short: ncu did not finish writing it; profile the kernels again")
    return results


def _block(header: bytes) -> tuple[int, int]:
    """Results in a block and bytes of its payload: fields 2 and 5 of its header, a protocol buffer."""
    at = 0
    fields = {2: 0, 5: 0}
    while at < len(header):
        key, at = _varint(header, at)
        if key & 7 == 0:
            value, at = _varint(header, at)
            fields[key >> 3] = value
        elif key & 7 == 2:
            value, at = _varint(header, at)
            at += value
        else:
            at += 8 if key & 7 == 1 else 4
    if at > len(header):
        raise IndexError
    return fields[2], fields[5]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def _actions(context: Any) -> Iterator[Any]:
    for number in range(context.num_ranges()):
        part = context.range_by_idx(number)
        for index in range(part.num_actions()):
            action = part.action_by_idx(index)
            if action.workload_type() == action.WorkloadType_KERNEL:
                yield action


def _profile(name: str, actions: list[Any], root: Path | None) -> KernelProfile:
    action = _median(actions)
    figures = ncu_figures.read(_values(action), lambda metric: _text(action, metric))
    return figures.model_copy(update={
        "name": name,
        "launches": len(actions),
        "rules": _rules(action),
        "lines": _lines(action, root),
    })  # fmt: skip


def _median(actions: list[Any]) -> Any:
    """A duration that was not measured counts as the shortest."""
    durations = [_value(action, ncu_figures.DURATION) or 0.0 for action in actions]
    return actions[durations.index(statistics.median_high(durations))]


def _values(action: Any) -> Callable[[str], float | None]:
    return lambda metric: _value(action, metric)


def _value(action: Any, metric: str) -> float | None:
    found = action.metric_by_name(metric)
    if found is None or not found.has_value():
        return None
    value = found.value()
    return float(value) if isinstance(value, int | float) else None


def _text(action: Any, metric: str) -> str:
    found = action.metric_by_name(metric)
    value = found.value() if found is not None and found.has_value() else None
    return value if isinstance(value, str) else ""


def _rules(action: Any) -> tuple[RuleResult, ...]:
    results = []
    for found in action.rule_results():
        if not found.has_rule_message():
            continue
        message = found.rule_message()
        aside = int(message["type"]) == _FINE and not message["title"]
        if int(message["type"]) in _NO_OPINION or aside or _ASIDE in message["message"]:
            continue
        estimate = found.speedup_estimation() if found.has_speedup_estimation() else None
        results.append(RuleResult(
            rule=found.rule_identifier(),
            title=message["title"],
            message=ncu_figures.plain(message["message"]),
            speedup_percent=float(estimate["speedup"]) if estimate else None,
            scope=_SCOPES.get(int(estimate["type"])) if estimate else None,
        ))  # fmt: skip
    return tuple(sorted(results, key=lambda result: (result.scope != "kernel", -(result.speedup_percent or 0.0))))


def _lines(action: Any, root: Path | None) -> tuple[SourceLine, ...]:
    """Warp samples by source line; without samples, executed instructions. () without line information (`-lineinfo`)."""
    by_pc = _instances(action, _SAMPLES) or _instances(action, _INSTRUCTIONS)
    total = sum(by_pc.values())
    if not total:
        return ()
    places: dict[int, tuple[str, int]] = {}
    for pc in by_pc:
        info = action.source_info(pc)
        if info is not None and info.file_name():
            places[pc] = (info.file_name(), info.line())
    weights: dict[tuple[str, int], float] = {}
    reasons: dict[tuple[str, int], dict[str, float]] = {}
    for pc, place in places.items():
        weights[place] = weights.get(place, 0.0) + by_pc[pc]
    for metric in action.metric_names():
        if metric.startswith(_SAMPLED) and not metric.endswith(("_not_issued", "_selected")):
            for pc, count in _instances(action, metric).items():
                if count and pc in places:
                    seen = reasons.setdefault(places[pc], {})
                    reason = metric.removeprefix(_SAMPLED)
                    seen[reason] = seen.get(reason, 0.0) + count
    held = dict(action.source_files())
    hottest = sorted(weights, key=lambda place: -weights[place])[:_MOST_LINES]
    return tuple(
        SourceLine(
            file=own_path(file, root),
            line=line,
            share=weights[file, line] / total,
            stall=max(reasons.get((file, line), {"": 0.0}).items(), key=lambda item: item[1])[0],
            text=_line_of(held.get(file, "") or _text_under(root, file), line),
        )
        for file, line in hottest
        if weights[file, line]
    )


def _text_under(root: Path | None, file: str) -> str:
    """The program's own file, and no other that a report may name."""
    if root is None:
        return ""
    folder = root.parent if root.is_file() else root
    place = folder / own_path(file, root)
    if not place.resolve().is_relative_to(folder.resolve()) or not place.is_file():
        return ""
    return place.read_text(errors="replace")


def _line_of(text: str, number: int) -> str:
    lines = text.splitlines()
    return lines[number - 1].strip() if 0 < number <= len(lines) else ""


def _instances(action: Any, metric: str) -> dict[int, float]:
    """A metric's values by address of the instruction."""
    found = action.metric_by_name(metric)
    if found is None or not found.has_correlation_ids():
        return {}
    addresses = found.correlation_ids()
    return {addresses.as_uint64(i): float(found.as_double(i)) for i in range(found.num_instances())}
