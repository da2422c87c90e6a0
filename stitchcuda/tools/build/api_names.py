"""Functions of CUDA and its libraries that a program calls and that no header at hand has: told before any compiler runs.

Models make such names up, and a compiler says of each only that it is undefined, after all headers were read. A correct program
is never refused: where a header cannot be seen, or a call is not certain, nothing is said and the compiler decides. It compiles
nothing and changes nothing. Where to look next: `tools/build/api_calls.py` (what is a call), `tools/build/header_names.py`
(what there is).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from stitchcuda.tools.build import api_calls, header_names
from stitchcuda.tools.build.header_names import NAME, SUBFOLDERS
from stitchcuda.tools.build.libraries import FAMILIES
from stitchcuda.tools.build.nearest_names import nearest
from stitchcuda.tools.build.program_text import Text


class _Api(NamedTuple):
    title: str
    header: str                            # which is there if its headers are


# By what a name begins with, the longest first.
_APIS = {
    "cublasLt": _Api("cuBLASLt", "cublasLt.h"),
    "cublas": _Api("cuBLAS", "cublas_api.h"),
    "cudnn": _Api("cuDNN", "cudnn.h"),
    "curand": _Api("cuRAND", "curand_kernel.h"),
    "cufft": _Api("cuFFT", "cufft.h"),
    "cusolver": _Api("cuSOLVER", "cusolverDn.h"),
    "cusparse": _Api("cuSPARSE", "cusparse.h"),
    "cuda": _Api("the CUDA runtime", "cuda_runtime_api.h"),
    "cu": _Api("the CUDA driver", "cuda.h"),
}
_HELPED = 12                               # names with their nearest: a reader is not shown more
_FOLDER = re.compile(r"-(?:I|isystem|iquote)(?P<folder>.*)", re.DOTALL)
# C's, C++'s and the system's headers, which name none of these APIs.
_STANDARD = re.compile(
    r"[a-z_0-9]+|(?:assert|complex|ctype|errno|fenv|float|inttypes|iso646|limits|locale|math|setjmp|signal|stdalign|stdarg|stdatomic"
    r"|stdbool|stddef|stdint|stdio|stdlib|string|strings|tgmath|threads|time|uchar|wchar|wctype|dlfcn|fcntl|malloc|omp|pthread|sched"
    r"|semaphore|unistd|cpuid|[a-z]mmintrin|immintrin|x86intrin|arm_neon|Python|sys/\w+)\.h"
)


def unknown_calls(
    sources: Sequence[Path], own: Sequence[Path], *, order: Sequence[str], folders: Sequence[Path], root: Path, cache: Path
) -> str:
    """One line per name, as a compiler says it, or "". `own` are the program's headers that the sources may include.

    `order` is what the compilers are told beyond the sources: it names folders of headers, and macros. They look in `folders`
    too; those that hold none of CUDA's headers do not matter.
    """
    texts = [Text(path, path.read_text("utf-8", "replace")) for path in dict.fromkeys((*sources, *own))]
    places = _places(order, folders, root)
    at_hand = {prefix for prefix, api in _APIS.items() if any((folder / api.header).is_file() for folder in places)}
    left = {name for name in api_calls.possible(texts) if _prefix(name) in at_hand}
    left.difference_update(name for word in order for name in re.findall(NAME, word.removeprefix("-D")))
    try:
        functions: set[str] = set()
        for folder in places:
            if left:
                found = header_names.of(folder, cache, deep=False)
                functions |= found.functions
                left = found.lacking(left)
        calls = api_calls.certain(left, texts, set(sources)) if left else []
        if not calls or not all(_visible(text, texts, places) for text in texts):
            return ""
        left = {call.name for call in calls}
        for folder in _below(places):
            if left:
                left = header_names.of(folder, cache, deep=True).lacking(left)
    except OSError:                        # a header that nobody may read: the compiler will say so
        return ""
    lines: list[str] = []
    for call in calls:
        if call.name in left:
            near = ", ".join(nearest(call.name, functions)) if len(lines) < _HELPED else ""
            said = f"error: {call.name} is in no header of {_APIS[_prefix(call.name)].title} at hand"
            lines.append(f"{_shown(call.file, root)}:{call.line}: {said}{f'; nearest: {near}' if near else ''}")
    return "\n".join(lines)


def _prefix(name: str) -> str:
    fits = (prefix for prefix in _APIS if name.startswith(prefix))
    return next(prefix for prefix in fits if prefix == "cu" or not name[len(prefix):][:1].islower())


def _places(order: Sequence[str], folders: Sequence[Path], root: Path) -> list[Path]:
    """Where the compilers find headers that are not the program's own."""
    named: list[Path] = []
    words = iter(order)
    for word in words:
        if (found := _FOLDER.fullmatch(word)) is not None:
            named.append(Path(found["folder"] or next(words, "")))
    probes = {family.probe for family in FAMILIES} | {api.header for api in _APIS.values()}
    places = [folder for folder in folders if any((folder / probe).is_file() for probe in probes)]
    places += [folder for folder in named if not folder.resolve().is_relative_to(root.resolve())]
    places += [folder / "cccl" for folder in places]   # where nvcc 13 looks as well
    return [folder for folder in dict.fromkeys(one.resolve() for one in places) if folder.is_dir()]


def _below(places: Sequence[Path]) -> Iterator[Path]:
    yield from (folder / name for folder in places for name in SUBFOLDERS if (folder / name).is_dir())


def _visible(text: Text, texts: Sequence[Text], places: Sequence[Path]) -> bool:
    """Whether everything that it includes is the program's, the system's, or among what is read here."""
    own = {one.file.name for one in texts}
    for include in text.includes:
        if include.name is None:
            return False
        first = include.name.partition("/")
        within = not first[1] or first[0] in SUBFOLDERS
        there = within and any((folder / include.name).is_file() for folder in places)
        if not there and Path(include.name).name not in own and not _STANDARD.fullmatch(include.name):
            return False
    return True


def _shown(file: Path, root: Path) -> Path:
    return file.relative_to(root) if file.is_relative_to(root) else file
