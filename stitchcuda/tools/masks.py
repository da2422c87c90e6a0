"""Rewrites CUDA sources so that each kernel can be switched off and counted: the "masked" build of a program on a GPU.

Every `__global__` body begins with `if (skipped(k)) return;`, where `skipped` reads a switch in device memory (so that graph
replays obey it too) and counts the launch. The library then exports the weak variable `stitchcuda_masks`, a list with one entry
per rewritten file. It never compiles anything, and a kernel whose body it does not find keeps running: `skipping.py` says so.
The simulator needs none of this, its runtime skips. Where to look next: `switches.py` (who turns them), `skipping.py` (why).
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from stitchcuda.simulator.source import Edit, apply, closing, directive_end, find_outside_brackets, opening
from stitchcuda.simulator.source import masked as blanked

ENTRIES = "stitchcuda_masks"               # the exported list; `switches.py` walks it
_ATTRIBUTE = re.compile(
    r"\b(?:__launch_bounds__|__cluster_dims__|__block_size__|__maxnreg__|__attribute__|__declspec|alignas|__align__"
    r"|noexcept|__minnctapersm__)\s*(?=\()"
)
_INCLUDE = re.compile(r'(?m)^(?P<before>[ \t]*#[ \t]*include[ \t]*)"(?P<name>[^"\n]+)"')
_DEFINE = re.compile(r"(?m)^[ \t]*#[ \t]*define[ \t]+(?P<name>\w+)(?P<rest>(?:\\\n|[^\n])*)")

# Only what nvcc declares by itself: a file's own first lines (feature macros, includes) must stay its first.
_PRELUDE = """\
#if defined(__CUDACC__) && !defined(STITCHCUDA_MASK_@)
#define STITCHCUDA_MASK_@
#ifndef STITCHCUDA_MASKS
#define STITCHCUDA_MASKS
struct StitchcudaMask {
  StitchcudaMask* next;
  const char* prefix;
  const char* names;
  int count;
  int (*set)(const unsigned char*);
  int (*take)(unsigned long long*);
};
extern "C" { __attribute__((weak, visibility("default"))) StitchcudaMask* stitchcuda_masks = nullptr; }
#endif
static __device__ volatile unsigned char stitchcuda_skip_@[$];
static __device__ unsigned long long stitchcuda_count_@[$];
static __device__ __forceinline__ bool stitchcuda_skipped_@(int kernel) {
  if ((threadIdx.x | threadIdx.y | threadIdx.z | blockIdx.x | blockIdx.y | blockIdx.z) == 0)
    atomicAdd(&stitchcuda_count_@[kernel], 1ull);
  return stitchcuda_skip_@[kernel] != 0;
}
static int stitchcuda_set_@(const unsigned char* on) {
  return static_cast<int>(cudaMemcpyToSymbol(stitchcuda_skip_@, on, $, 0, cudaMemcpyHostToDevice));
}
static int stitchcuda_take_@(unsigned long long* counts) {
  static const unsigned long long none[$] = {};
  cudaError_t error = cudaMemcpyFromSymbol(counts, stitchcuda_count_@, sizeof none, 0, cudaMemcpyDeviceToHost);
  if (error == cudaSuccess) error = cudaMemcpyToSymbol(stitchcuda_count_@, none, sizeof none, 0, cudaMemcpyHostToDevice);
  return static_cast<int>(error);
}
static StitchcudaMask stitchcuda_mask_@ = {nullptr, "@", "%", $, stitchcuda_set_@, stitchcuda_take_@};
static const bool stitchcuda_listed_@ =
    (stitchcuda_mask_@.next = stitchcuda_masks, stitchcuda_masks = &stitchcuda_mask_@, true);
#endif
"""


def masked(text: str, prefix: str, *, aliases: Iterable[str] = ()) -> tuple[str, tuple[str, ...]]:
    """(the text with a switch at the head of each kernel, the kernels' names); without kernels the text as it is.

    `prefix` tells the files of a library apart. `aliases` are macros of other files that stand for `__global__`. Line numbers
    stay what they were. Overloads and specialisations get names of their own (`scale`, `scale#2`); all instances of one
    template share a switch.
    """
    heads = definitions(text, aliases=aliases)
    if not heads:
        return text, ()
    prefix = re.sub(r"\W", "_", prefix)
    names = tuple(name for name, _ in heads)
    skip = [
        Edit(at + 1, at + 1, f" if (::stitchcuda_skipped_{prefix}({number})) return;") for number, (_, at) in enumerate(heads)
    ]
    listed = "\\n".join(name.replace("\\", "").replace('"', "") for name in names)
    prelude = _PRELUDE.replace("@", prefix).replace("$", str(len(names))).replace("%", listed)
    return f"{prelude}#line 1\n{apply(text, skip)}", names


def definitions(text: str, *, aliases: Iterable[str] = ()) -> list[tuple[str, int]]:
    """(name, position of the body's opening brace) of every kernel that the text defines, in its order."""
    code = blanked(text)
    words = ["__global__", *aliases, *_aliases(code)]
    found: list[tuple[str, int]] = []
    used: dict[str, int] = {}
    seen: set[int] = set()
    for match in re.finditer(rf"\b(?:{'|'.join(map(re.escape, words))})\b", code):
        limit = directive_end(code, match.start())
        if limit is not None and match.group() != "__global__":
            continue                       # an alias where it is defined
        body = _body(code, match.end(), len(code) if limit is None else limit)
        if body is None or body in seen:
            continue
        seen.add(body)
        whole = match.start() if match.group() != "__global__" else match.end()
        name = _name(code[whole:body], words)
        if limit is not None and (macro := _DEFINE.match(code, _logical_line(code, match.start()))) is not None:
            name = macro["name"]            # a macro that writes whole kernels: all of them share a switch
        used[name] = used.get(name, 0) + 1
        found.append((name if used[name] == 1 else f"{name}#{used[name]}", body))
    return found


def masked_files(
    sources: Sequence[Path], *, folder: Path, include_dirs: Sequence[Path] = (), within: Path | None = None
) -> tuple[list[Path], tuple[str, ...]]:
    """(masked copies of the CUDA sources, other sources as they are; names of all kernels).

    Headers that hold kernels are copied and masked as well, if they lie beside the sources, in `include_dirs` or `within`; the
    copies say the original's path and line to the compiler. `folder` takes the copies under names that say what is in them.
    """
    made, names = [], []
    for source in sources:
        if source.suffix != ".cu":
            made.append(source)
            continue
        copy, kernels = _copy(source.resolve(), folder, [*include_dirs, *([within] if within else [])], ())
        made.append(copy or source)
        names += kernels
    return made, tuple(dict.fromkeys(names))


def _copy(file: Path, folder: Path, places: Sequence[Path], above: tuple[Path, ...]) -> tuple[Path | None, list[str]]:
    """A masked copy of a source, or None for a header in which nothing had to change."""
    text = file.read_text(encoding="utf-8", errors="surrogateescape")
    names: list[str] = []
    changed = not above

    def redirect(match: re.Match[str]) -> str:
        nonlocal changed
        tried = ((Path(place) / match["name"]).resolve() for place in (file.parent, *places))
        header = next((path for path in tried if path.is_file()), None)
        if header is None or header in above or header == file:
            return match.group()
        copy, kernels = _copy(header, folder, places, (*above, file))
        names.extend(kernels)
        changed = changed or copy is not None
        return f'{match["before"]}"{copy or header}"'   # a copy lies elsewhere: relative names would not be found

    aliases = _aliases_of(file, places, above)
    key = hashlib.sha256(f"{file.name}\0{text}".encode(errors="surrogateescape")).hexdigest()[:16]
    body, kernels = masked(text, f"m{key}", aliases=aliases)
    names += kernels
    changed = changed or bool(kernels)
    body = body.replace("#line 1\n", f'#line 1 "{file}"\n', 1) if kernels else f'#line 1 "{file}"\n{body}'
    body = _INCLUDE.sub(redirect, body)
    if not changed:
        return None, names
    copy = folder / hashlib.sha256(body.encode(errors="surrogateescape")).hexdigest()[:16] / file.name
    if not copy.exists():
        copy.parent.mkdir(parents=True, exist_ok=True)
        temporary = copy.with_name(f".{copy.name}.{os.getpid()}")
        temporary.write_text(body, encoding="utf-8", errors="surrogateescape")
        os.replace(temporary, copy)
    return copy, names


def _aliases_of(file: Path, places: Sequence[Path], above: tuple[Path, ...]) -> list[str]:
    """Macros that stand for `__global__` in the headers a file includes, directly or not, and in the files that include it."""
    found: list[str] = []
    waiting, seen = [file, *above], set[Path]()
    while waiting:
        one = waiting.pop()
        if one in seen:
            continue
        seen.add(one)
        text = one.read_text(encoding="utf-8", errors="surrogateescape")
        found += _aliases(blanked(text))
        for match in _INCLUDE.finditer(text):
            tried = ((Path(place) / match["name"]).resolve() for place in (one.parent, *places))
            waiting += [path for path in tried if path.is_file()][:1]
    return list(dict.fromkeys(found))


def _aliases(code: str) -> list[str]:
    """Macros whose replacement names `__global__` (or another such macro) and leaves the body to whoever uses them."""
    macros = {match["name"]: match["rest"] for match in _DEFINE.finditer(code)}
    found: list[str] = []
    words = {"__global__"}
    while True:
        more = [
            name for name, rest in macros.items()
            if name not in words and "{" not in rest and any(re.search(rf"\b{re.escape(word)}\b", rest) for word in words)
        ]  # fmt: skip
        if not more:
            return found
        found += more
        words.update(more)


def _logical_line(code: str, at: int) -> int:
    """Where the line of `at` begins, with the lines that a backslash joins to it."""
    start = code.rfind("\n", 0, at) + 1
    while start > 1 and code[start - 2] == "\\":
        start = code.rfind("\n", 0, start - 1) + 1
    return start


def _body(code: str, at: int, end: int) -> int | None:
    """Where the body of the kernel declared from `at` on begins; None for a mere declaration."""
    code = code[:end]
    brace, semicolon = find_outside_brackets(code, "{", at), find_outside_brackets(code, ";", at)
    if brace < 0 or 0 <= semicolon < brace:
        return None
    return brace


def _name(head: str, words: Sequence[str]) -> str:
    """The kernel's name from what stands between `__global__` and its body: the word before the last parameter list."""
    head = re.sub(r"\\\n", " ", re.sub(r"(?m)^[ \t]*#.*$", " ", head))
    while (match := _ATTRIBUTE.search(head)) is not None:
        end = closing(head, head.index("(", match.end() - 1))
        if end < 0:
            break
        head = head[: match.start()] + " " + head[end + 1 :]
    head = re.sub(r"\)\s*->[^()]*$", ")", head)
    last = head.rfind(")")
    first = opening(head, last) if last >= 0 else -1
    if first < 0:
        return "?"
    before = head[:first].rstrip()
    if before.endswith(">") and (angle := before.find("<")) > 0:
        before = before[:angle].rstrip()    # an explicit specialisation
    word = re.search(r"(?:\w+|\w+\s*\([^()]*\))$", before)
    if word is not None and word.group() in words:
        argument = re.match(r"\(\s*(\w+)", head[first:])
        return argument.group(1) if argument else word.group()
    return re.sub(r"\s+", "", word.group()) if word else re.sub(r"\s+", "", head[first:])[:40]
