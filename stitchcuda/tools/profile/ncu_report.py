"""Reads Nsight Compute's report files (`.ncu-rep`) into kernel profiles, through NVIDIA's own Python interface.

The interface is `ncu-report` from PyPI (2026.3.1 works, and reads reports of older versions of ncu), else the one in Nsight
Compute's own folder. In a damaged file it may find no kernels: the caller has to compare with those that were profiled.
Where to look next: `tools/profile/report_reader.py` (does the same in a sandbox), `tools/profile/kernel_profile.py` (the
records), `tools/profile/ncu_figures.py` (the counters).
"""

from __future__ import annotations

import importlib
import statistics
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
    """Returns one profile per kernel of the report, by descending share of the call, else as they were launched.

    `shares` (0 to 1) and `origins` have demangled names as keys, in the spelling of any demangler. Source files under `root`,
    the program's folder, become relative, and their text is read there if the report does not hold it. Raises `Unavailable`
    where the interface is missing, or cannot read the file. A report without kernels gives ().
    """
    interface = _interface()
    try:
        with report.open("rb") as file:
            head = file.read(len(_MAGIC))
    except OSError as why:
        raise Unavailable(f"no report of Nsight Compute at {report} ({why.strerror}); profile the kernels again") from why
    if head != _MAGIC:
        raise Unavailable(f"{report} is no report of Nsight Compute; give the .ncu-rep file that ncu wrote")
    try:
        profiles = _profiles(interface.load_report(str(report)), shares or {}, origins or {}, root)
    except Exception as why:               # the interface raises whatever a damaged file makes it stumble over
        raise Unavailable(f"{report} cannot be read as an Nsight Compute report: {why}; profile the kernels again") from why
    return tuple(sorted(profiles, key=lambda profile: -(profile.share or 0.0)))


def _profiles(
    context: Any, shares: Mapping[str, float], origins: Mapping[str, str], root: Path | None
) -> list[KernelProfile]:
    """Raises ValueError for a kernel without a name, as NVIDIA's interface finds them in a file that was cut short."""
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
    """Looks a kernel up by its names; else by its base name, if only one kernel has that: demanglers differ."""
    exact = next((known[name] for name in names if name in known), None)
    if exact is not None:
        return exact
    alike = [name for name in known if kernel_names.base_name(name) == kernel_names.base_name(names[0])]
    return known[alike[0]] if len(alike) == 1 else None


def missing() -> str:
    """Returns why reports cannot be read here, with the remedy; "" if they can."""
    try:
        _interface()
    except Unavailable as why:
        return str(why)
    return ""


def _interface() -> Any:
    """Imports the module `ncu_report`: the installed one, else that of Nsight Compute's own folder."""
    try:
        return importlib.import_module("ncu_report")
    except ImportError as why:
        first = why
    for folder in _beside_ncu():
        sys.path.insert(0, str(folder))
        try:
            return importlib.import_module("ncu_report")
        except ImportError:
            continue                       # it is built for another Python
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
    """Returns the launch with the median duration; one that was not measured counts as the shortest."""
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
    """Returns the hottest source lines by warp samples, else by executed instructions; () without `-lineinfo`."""
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
    """Returns the text of the program's file; "" for a file outside of `root`, since a report may name any."""
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
    """Returns a metric's values by the address of the instruction."""
    found = action.metric_by_name(metric)
    if found is None or not found.has_correlation_ids():
        return {}
    addresses = found.correlation_ids()
    return {addresses.as_uint64(i): float(found.as_double(i)) for i in range(found.num_instances())}
