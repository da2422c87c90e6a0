"""Reads C++ and CUDA without compiling it: what no kernel needs is refused, what is unusual is noted.

Comments and string literals are masked before words are looked for, so that a comment cannot be blamed; includes, assembly and
blobs are looked for in the text itself. Where to look next: `screen.py`.
"""

from __future__ import annotations

import re
from typing import Literal

from stitchcuda.simulator.source import line_of, masked

Severity = Literal["refused", "noted"]

_BODY = r"\s*\([^;{}]*\)\s*(?:noexcept\s*)?\{"         # a definition, not a declaration or a call
_RULES: tuple[tuple[Severity, str, str], ...] = (
    ("refused", "runs code when the library is loaded",
     r"\b__attribute__\s*\(\(\s*(?:constructor|destructor)|\[\[gnu::(?:constructor|destructor)"),
    ("refused", "defines a function of CUDA itself",
     rf"\b(?:cudaError_t|CUresult)\s+(?:CUDARTAPI\s+|CUDAAPI\s+)?cu(?:da)?[A-Z]\w*{_BODY}"),
    ("refused", "defines a function of the system's library",
     rf"\b(?:int|time_t|long|ssize_t|clock_t)\s+(?:clock_gettime|gettimeofday|time|clock|nanosleep|write|read|poll|select){_BODY}"),
    ("refused", "reaches into memory or libraries that are not its own",
     r"\b(?:mprotect|ptrace|process_vm_readv|process_vm_writev|LD_PRELOAD|dl_iterate_phdr|RTLD_NEXT)\b"),
    ("refused", "talks to the profiler", r"\bcupti[A-Z]\w*\s*\("),
    ("refused", "runs or changes Python from C++",
     r"\b(?:py|pybind11)::(?:exec|eval|eval_file|module_?::import|globals)\b"
     r"|\b(?:PyRun|PyEval|PyImport)_\w+|\bPyObject_SetAttr\w*"),
    ("refused", "overrides torch's own operators", r"\bTORCH_LIBRARY_IMPL\s*\(\s*aten\b"),
    ("refused", "hides torch operators from those who count them",
     r"\b(?:(?:Exclude|Include|Force)DispatchKeyGuard|AutoDispatchSkipFunctionalize|clear(?:Global|ThreadLocal)?Callbacks"
     r"|DisableRecordFunctionGuard|RecordFunctionGuard|removeCallback|disableCallback|PythonTLSSnapshot|TorchDispatchModeTLS)\b"),
    ("noted", "starts a thread or a process",
     r"\b(?:fork|vfork|execve?|execvp|popen|system|posix_spawnp?|pthread_create)\s*\(|\bstd::(?:thread|async|jthread)\b"),
    ("noted", "opens libraries at run time", r"\b(?:dlopen|dlsym)\s*\("),
    ("noted", "runs host code from a stream", r"\bcuda(?:LaunchHostFunc|StreamAddCallback)\s*\("),
    ("noted", "looks at a clock", r"\b(?:clock64|globaltimer|__nanosleep)\b"),
)  # fmt: skip
_TEXTS: tuple[tuple[Severity, str, str], ...] = (
    ("refused", "names what belongs to the verifier", r"STITCHCUDA_|\bstitchcuda_"),
    ("refused", "takes a file in as binary", r"\.incbin\b|^[ \t]*#[ \t]*embed\b"),
    ("refused", "includes a file from outside of the program",
     r"^[ \t]*#[ \t]*include(?:_next)?[ \t]*[<\"](?:/|[^>\"\n]*\.\./)"),
    ("refused", "names a file that is no business of a program", r"\"/(?:proc|dev/shm|dev/fd|sys/class|root|home|etc)/"),
    ("refused", "holds a long table of bytes", r"(?:0x[0-9a-fA-F]{2}\s*,\s*){400,}|(?:\\x[0-9a-fA-F]{2}){400,}"),
    ("refused", "holds a long encoded text", r"[A-Za-z0-9+/]{3000,}={0,2}"),
)  # fmt: skip


def screen(text: str) -> list[tuple[Severity, int, str]]:
    """(severity, line, what it does) for each finding in one source text."""
    bare = masked(text)
    found = [(kind, line_of(text, hit.start()), why) for kind, why, rule in _RULES for hit in re.finditer(rule, bare)]
    bare = _without_comments(text)
    for kind, why, rule in _TEXTS:
        found += [(kind, line_of(text, hit.start()), why) for hit in re.finditer(rule, bare, re.MULTILINE)]
    return found


def _without_comments(text: str) -> str:
    """The text with comments blanked, strings kept, positions unchanged."""
    pattern = r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|//[^\n]*|/\*[\s\S]*?\*/'

    def blank(hit: re.Match[str]) -> str:
        piece = hit.group(0)
        return piece if piece[0] in "\"'" else re.sub(r"[^\n]", " ", piece)

    return re.sub(pattern, blank, text)
