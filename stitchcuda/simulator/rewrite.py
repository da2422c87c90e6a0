"""Rewrites CUDA C++ as C++ that compiles with the simulator's headers.

Only what C++ cannot express is rewritten: launches, dynamic shared memory, the start of a shared variable's life, `static`
beside `__constant__`, launches by address, and the macros that ask for a CUDA compiler. All else is macros and functions in
include/stitchsim. Line numbers do not change.
Where to look next: `simulator/source.py` (reads C++), `simulator/build.py` (who calls this).
"""

from __future__ import annotations

import re

from stitchcuda.simulator.source import (
    Edit,
    apply,
    closing,
    directive_end,
    find_outside_brackets,
    in_function,
    masked,
    opening,
    statement_start,
)

# Words and alignments right in front of `__shared__`: `extern`, `static volatile`, `alignas(16) float`, ...
_SPECIFIERS = re.compile(r"(?:(?:(?:alignas|__align__)[ \t]*\((?:[^()]|\([^()]*\))*\)|\b\w+\b)[\s\\]+)+\Z")
_VOID_CAST = re.compile(
    r"\(\s*(?:const\s+)?void\s*(?:const\s*)?\*\s*\)|(?:reinterpret_cast|static_cast)\s*<\s*(?:const\s+)?void\s*(?:const\s*)?\*\s*>"
)
_BY_ADDRESS = {"cudaLaunchKernel": "::stitchsim::launch_kernel", "cudaLaunchKernelEx": "::stitchsim::launch_kernel_ex"}
_KEYWORDS = {"return", "else", "do", "case", "throw", "co_return"}


def rewrite(text: str) -> str:
    """Returns the text of a CUDA file as C++, with the same number of lines."""
    code = masked(text)
    edits = [*_launches(code), *_launches_by_address(code), *_shared_variables(text, code), *_static_constants(code)]
    return apply(text, [*edits, *_compiler_macros(code)])


# ---- launches -------------------------------------------------------------------------------------------------------


def _launches(code: str) -> list[Edit]:
    """kernel<T><<<a, b>>>(c) becomes STITCHSIM_LAUNCH((kernel<T>), (a, b))(c), by edits around the pieces."""
    edits: list[Edit] = []
    for match in re.finditer(r"<<<", code):
        begin, end = match.span()
        close = _end_of_configuration(code, end)
        start = _start_of_kernel(code, begin)
        if close < 0 or start == begin:
            continue  # not a launch: leave it to the compiler, which says what is wrong
        edits += [Edit(start, start, "STITCHSIM_LAUNCH(("), Edit(begin, end, "), ("), Edit(close, close + 3, "))")]
    return edits


def _end_of_configuration(code: str, at: int) -> int:
    """Returns the position of the `>>>` that is followed by the arguments, or -1."""
    while True:
        at = find_outside_brackets(code, ">>>", at)
        if at < 0 or re.match(r">>>(?:\s|\\\n)*\(", code[at:]):
            return at
        at += 1


def _start_of_kernel(code: str, end: int) -> int:
    """Returns where the expression before `end` begins: names, template arguments, calls, subscripts, member access."""
    start = end
    while True:
        at = len(code[:start].rstrip(" \t\n\\"))
        if at == 0:
            return start
        last = code[at - 1]
        if last == ">" and code[at - 2 : at] != "->":
            at = _opening_angle(code, at - 1)
        elif last in ")]":
            at = opening(code, at - 1)
        elif last.isalnum() or last == "_":
            word = re.search(r"\w+$", code[:at])
            assert word is not None
            if word.group() in _KEYWORDS:
                return start
            at = word.start()
        else:
            return start
        if at < 0:
            return start
        start = at
        joined = re.search(r"(?:::|\.|->)\s*(?:template\s+)?$", code[:start])
        if joined is not None:
            start = joined.start()
            if not re.search(r"[\w)\]>]\s*$", code[:start]):
                return start  # a leading ::
        elif code[start] in "([" or code[start] == "<":
            if not re.search(r"[\w>\])]$" if code[start] != "<" else r"\w\s*$", code[:start]):
                return start
        else:
            return start


def _opening_angle(code: str, at: int) -> int:
    """Returns the position of the `<` that the `>` at `at` closes, skipping bracketed parts, or -1."""
    depth = 0
    while at >= 0:
        if code[at] in ")]}":
            at = opening(code, at)
        elif code[at] == ">" and code[at - 1] != "-":
            depth += 1
        elif code[at] == "<":
            depth -= 1
            if depth == 0:
                return at
        elif code[at] in ";{":
            return -1
        at -= 1
    return -1


def _launches_by_address(code: str) -> list[Edit]:
    """cudaLaunchKernel((void*)k, ...) keeps the kernel's type: the function is renamed and a cast to void* dropped."""
    edits: list[Edit] = []
    for match in re.finditer(r"(?:::\s*)?\b(cudaLaunchKernel(?:Ex)?)\s*\(\s*", code):
        edits.append(Edit(match.start(), match.end(1), _BY_ADDRESS[match.group(1)]))
        cast = _VOID_CAST.match(code, match.end())
        if cast is not None:
            edits.append(Edit(cast.start(), cast.end(), ""))
    return edits


# ---- shared memory --------------------------------------------------------------------------------------------------


def _shared_variables(text: str, code: str) -> list[Edit]:
    edits: list[Edit] = []
    for match in re.finditer(r"\b__shared__\b", code):
        limit = directive_end(code, match.start())
        end = find_outside_brackets(code, ";", match.end())
        if end < 0 or (limit is not None and end >= limit):
            continue  # a macro that stands for a part of a declaration
        specifiers = _SPECIFIERS.search(code, statement_start(code, match.start()), match.start())
        start = match.start() if specifiers is None else specifiers.start()
        before = code[start : match.start()]
        declaration = re.sub(r"\\\n", " ", text[start : match.start()] + text[match.end() : end])
        declaration = re.sub(r"//[^\n]*|/\*.*?\*/", " ", declaration, flags=re.DOTALL)
        if re.search(r"\bextern\b", before):
            first = start + before.index("extern")
            edits.append(Edit(first, end + 1, _dynamic(declaration, in_function(code, match.start()))))
            continue
        edits += [Edit(start + word.start(), start + word.end(), "") for word in re.finditer(r"\bstatic\b", before)]
        for word in re.finditer(r"\balignas\b(?=\s*\()", code[match.end() : end]):  # C++ wants it in front of `static`
            edits.append(Edit(match.end() + word.start(), match.end() + word.end(), "__align__"))
        if limit is not None or in_function(code, match.start()):
            begun = "".join(f" STITCHSIM_BEGIN_SHARED({name})" for name in _declared_names(declaration))
            edits.append(Edit(end + 1, end + 1, begun))
    return edits


def _dynamic(declaration: str, local: bool) -> str:
    """Rewrites `extern T name[]` as a pointer to the launch's dynamic shared memory."""
    plain = _without_alignment(re.sub(r"\bextern\b", " ", declaration[declaration.index("extern") :]))
    match = re.match(r"\s*(?P<type>.+?)\s*\b(?P<name>\w+)\s*\[[^\]]*\](?P<rest>.*)$", plain, re.DOTALL)
    if match is None:  # a single variable, or something stranger: the compiler's error will show it
        return f"extern {plain};"
    kind, name, rest = " ".join(match["type"].split()), match["name"], match["rest"].strip()
    pointee = f"::stitchsim::Same<{kind}{rest}>" if rest else kind
    storage = "" if local else "static thread_local "
    return f"{storage}{pointee}* const {name} = ::stitchsim::dynamic_shared<{pointee}>();"


def _without_alignment(declaration: str) -> str:
    while True:
        match = re.search(r"\b(?:alignas|__align__|__builtin_align__|__attribute__)\s*\(", declaration)
        if match is None:
            return declaration
        declaration = declaration[: match.start()] + " " + declaration[closing(declaration, match.end() - 1) + 1 :]


def _declared_names(declaration: str) -> list[str]:
    """Returns the names that a declaration without initialisers declares: the last word of each declarator."""
    plain = _without_alignment(declaration)
    for inner in (r"\{[^{}]*\}", r"\[[^\[\]]*\]", r"\([^()]*\)", r"<[^<>]*>"):
        while (shorter := re.sub(inner, " ", plain)) != plain:
            plain = shorter
    words = [re.findall(r"\w+", declarator) for declarator in plain.split(",")]
    return [found[-1] for found in words if found]


# ---- the rest -------------------------------------------------------------------------------------------------------


def _static_constants(code: str) -> list[Edit]:
    """Removes `static` beside `__constant__`, which is a macro with `static`."""
    pattern = r"\bstatic\b(?=[^;{}()=]*\b__constant__\b)|(?<=__constant__)\s+static\b"
    return [Edit(match.start(), match.end(), "") for match in re.finditer(pattern, code)]


def _compiler_macros(code: str) -> list[Edit]:
    """Makes the program's own conditions, but no other headers', take the device's side."""
    names = {"__CUDA_ARCH__": "STITCHSIM_CUDA_ARCH", "__CUDACC__": "STITCHSIM_CUDACC"}
    return [Edit(match.start(), match.end(), names[match.group()]) for match in re.finditer(r"\b__CUDA(?:_ARCH|CC)__\b", code)]
