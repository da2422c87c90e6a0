"""Screens C++ and CUDA sources without compiling them: refuses what no kernel needs, notes what is unusual.

The rules are `_RULES` (words), `_TEXTS` (paths, binaries, encoded text) and definitions of CUDA's or the system's functions.
Comments and string literals are masked before `_RULES` are searched, so that a comment cannot be blamed. Each rule reports its
first `_MOST_PLACES` places; the time is linear in the text's length.
Where to look next: `verify/integrity/screen.py` (the rules for Python, and who calls this).
"""

from __future__ import annotations

import itertools
import re
from bisect import bisect_left
from collections.abc import Iterator
from typing import Literal

from stitchcuda.simulator.source import line_of, masked

Severity = Literal["refused", "noted"]

_MOST_PLACES = 10                          # findings of one rule in one text
_RULES: tuple[tuple[Severity, str, str], ...] = (
    ("refused", "runs code when the library is loaded",
     r"\b__attribute__\s*\(\(\s*(?:constructor|destructor)|\[\[gnu::(?:constructor|destructor)"),
    ("refused", "reaches into memory or libraries that are not its own",
     r"\b(?:mprotect|process_vm_readv|process_vm_writev|LD_PRELOAD|dl_iterate_phdr|RTLD_NEXT|PTRACE_\w+)\b|\bptrace\s*\("),
    ("refused", "talks to the profiler", r"\bcupti[A-Z]\w*\s*\("),
    ("refused", "runs or changes Python from C++",
     r"\b(?:py|pybind11)::(?:exec|eval|eval_file|module_?::import|globals)\b"
     r"|\b(?:PyRun|PyEval|PyImport)_(?!(?:SaveThread|RestoreThread|InitThreads|ThreadsInitialized)\b)\w+|\bPyObject_SetAttr\w*"),
    ("refused", "overrides torch's own operators", r"\bTORCH_LIBRARY_IMPL\s*\(\s*aten\b"),
    ("refused", "hides torch operators from those who count them",
     r"\b(?:(?:Exclude|Include|Force)DispatchKeyGuard|AutoDispatchSkipFunctionalize|clear(?:Global|ThreadLocal)?Callbacks"
     r"|DisableRecordFunctionGuard|RecordFunctionGuard|removeCallback|disableCallback|(?:disable|enable|prepare)Profiler\w*"
     r"|toggleCollectionDynamic|enableRecordFunction|PythonTLSSnapshot|TorchDispatchModeTLS)\b"),
    ("refused", "removes files: they would be the user's, wherever it runs next",
     r"\b(?:filesystem|fs)\s*::\s*remove\s*\(|\bremove_all\s*\(|(?<![.>\w])(?:unlink|unlinkat|rmdir)\s*\(\s*[^)\s]"),
    ("refused", "opens or changes files, wherever it runs next",
     r"(?<![.>\w])(?:fopen|fopen64|freopen|f?truncate|opendir|scandir|rename|renameat|f?chmod)\s*\("
     r"|\b(?:std\s*::\s*)?(?:basic_)?[io]?f(?:stream|ilebuf)\b"),
    ("noted", "opens files, wherever it runs next", r"(?<![.>\w])(?:open|openat|creat|symlink)\s*\(\s*[^)\s]"),
    ("noted", "looks at its surroundings, and may do otherwise elsewhere",
     r"(?<![.>\w])(?:secure_)?getenv\s*\(|(?<![.>\w])(?:f?stat|access|getp?pid|gethostname|uname|getuid|prctl)\s*\("
     r"|(?<![.>\w])(?:getrlimit|sysconf|isatty|getauxval|syscall)\s*\("
     r"|\b(?:clock_gettime|gettimeofday|localtime|gmtime)\s*\(|(?<![.>\w])time\s*\(\s*(?:NULL|nullptr|0|&)"
     r"|\bchrono\s*::\s*system_clock\b|\b__NVCC__\b"),
    ("noted", "starts a thread or a process",
     r"\b(?:fork|vfork|execve?|execvp|popen|system|posix_spawnp?|pthread_create)\s*\(|\bstd::(?:thread|async|jthread)\b"),
    ("noted", "opens libraries at run time", r"\b(?:dlopen|dlsym)\s*\("),
    ("noted", "runs host code from a stream", r"\bcuda(?:LaunchHostFunc|StreamAddCallback)\s*\("),
    ("noted", "looks at a clock", r"\b(?:clock64|globaltimer|__nanosleep)\b"),
)  # fmt: skip
# Symbols of the masked build and of the simulator. A kernel may well be named after the project.
VERIFIERS = r"STITCHCUDA_|\bstitchsim\w|\bstitchcuda_(?:masks\b|(?:mask|skip|skipped|count|set|take|listed)_m[0-9a-f]{4})"
_TEXTS: tuple[tuple[Severity, str, str], ...] = (
    ("refused", "names what belongs to the verifier", VERIFIERS),
    ("refused", "takes a file in as binary", r"\.incbin\b|^[ \t]*#[ \t]*embed\b"),
    ("refused", "names a file that is no business of a program",
     r"\"/(?:[^\"\n]{0,200}\.\./)?[/.]{0,50}(?:proc|dev/+shm|dev/+fd|sys/+class|root|home|etc)/"),
    ("refused", "holds a long encoded text", r"(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{3000,}={0,2}"),
)  # fmt: skip
_BYTES = re.compile(r"(?:0x[0-9a-fA-F]{2}\s*+,\s*+)++|(?:\\x[0-9a-fA-F]{2})++")
_MOST_BYTES = 1024                         # in a table of numbers: device code would need more
_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include(?:_next)?[ \t]*[<\"](?P<name>[^>\"\n]*)", re.MULTILINE)
_LINE = re.compile(r"^[ \t]*#[ \t]*(?:line[ \t]+)?\d+[ \t]+\"[^\"\n]*\"", re.MULTILINE)

# Heads of functions that would replace CUDA's or the system's. One with a common name replaces the system's only if it has its
# parameters or C linkage; in C++ other parameters make it another function.
_CUDAS = re.compile(
    r"\b(?:cudaError_t|CUresult)\s+(?:CUDARTAPI\s+|CUDAAPI\s+)?(?:cu[A-Z]\w*|cuda(?:Array|Bind|Create|Ctx|Destroy|Device|Driver"
    r"|Event|External|Free|Func|Get|Graph|Host|Import|Ipc|Kernel|Launch(?:Kernel|Cooperative|Host|Device)|Library|Malloc|Mem"
    r"|Memcpy|Memset|Module|Occupancy|Peek|Pointer|Profiler|Runtime|Set|Signal|Stream|Thread|User|Wait)(?:[A-Z0-9_]\w*)?)\s*\("
)
_SYSTEMS = re.compile(
    r"\b(?:int|time_t|long|ssize_t|clock_t)\s+"
    r"(?P<name>clock_gettime|gettimeofday|time|clock|nanosleep|write|read|poll|select)\s*\("
)
_PARAMETERS = {
    "time": r"(?:std::)?time_t\b", "clock": r"(?:void)?$", "write": r"int\b[^,]*,\s*(?:const\s+void|void\s+const)\b",
    "read": r"int\b[^,]*,\s*void\b", "poll": r"(?:struct\s+)?pollfd\b", "select": r"int\b[^,]*,\s*fd_set\b",
}  # fmt: skip
_OWN = re.compile(r"\b(?:static|__device__|template)\b")
_C_LINKAGE = re.compile(r'\bextern\s*"[^"]*"')
_DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\\\n]+|\\\n?)*+", re.MULTILINE)


def screen(text: str, *, depth: int = 0) -> list[tuple[Severity, int, str]]:
    """Screens one source text, which lies `depth` folders below the program's; returns (severity, line, what it does)."""
    bare = masked(text)
    found = [(kind, at, why) for kind, why, rule in _RULES for at in _places(rule, bare)]
    found += [("refused", at, why) for at, why in itertools.islice(_replacements(bare), _MOST_PLACES)]
    uncommented = _LINE.sub(lambda hit: " " * len(hit.group()), masked(text, literals=False))
    found += [(kind, at, why) for kind, why, rule in _TEXTS for at in _places(rule, uncommented)]
    tables = (hit.start() for hit in _BYTES.finditer(uncommented) if hit.group().count("x") > _MOST_BYTES)
    found += [("refused", at, "holds a long table of bytes") for at in itertools.islice(tables, _MOST_PLACES)]
    outside = (hit.start() for hit in _INCLUDE.finditer(uncommented) if _leaves(hit["name"], depth))
    what = "includes a file from outside of the program"
    found += [("refused", at, what) for at in itertools.islice(outside, _MOST_PLACES)]
    return [(kind, line_of(text, at), why) for kind, at, why in found]


def _places(rule: str, text: str) -> list[int]:
    return [hit.start() for hit in itertools.islice(re.finditer(rule, text, re.MULTILINE), _MOST_PLACES)]


def _replacements(bare: str) -> Iterator[tuple[int, str]]:
    """Yields (position, what it does) of each definition of a function that would replace CUDA's or the system's."""
    stops = [hit.start() for hit in re.finditer(r"[;{}]", bare)]
    linked = _C_LINKAGE.search(bare) is not None
    for rule in (_CUDAS, _SYSTEMS):
        for hit in rule.finditer(bare):
            number = bisect_left(stops, hit.end())
            if number == len(stops) or bare[stops[number]] != "{":
                continue
            given = bare[hit.end() : stops[number]].rstrip().removesuffix("noexcept").rstrip()
            before = _DIRECTIVE.sub(" ", bare[stops[number - 1] + 1 if number else 0 : hit.start()])
            if not given.endswith(")") or _OWN.search(before):
                continue
            if rule is _CUDAS:
                yield hit.start(), "defines a function of CUDA itself"
            elif linked or re.match(_PARAMETERS.get(hit["name"], ""), given[:-1].strip()):
                yield hit.start(), "defines a function of the system's library"


def _leaves(name: str, depth: int) -> bool:
    """Whether an included path is absolute or leads out of the program's folder, from `depth` folders below it."""
    if name.startswith("/"):
        return True
    for part in name.split("/")[:-1]:
        depth += {"..": -1, ".": 0, "": 0}.get(part, 1)
        if depth < 0:
            return True
    return False
