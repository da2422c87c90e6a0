"""Rewrites CUDA sources so that each kernel can be switched off and counted on a GPU (for ablation).

Every `__global__` body begins with `if (skipped(k)) return;`, where `skipped` reads a switch in device memory, so that graph
replays obey it too, and counts the launch. The library exports the weak variable `stitchcuda_masks`, a list with one entry per
rewritten file. A kernel whose body is not found has no switch and always runs, which ablation reports. It compiles nothing. The
simulator needs no switches: its runtime can skip kernels.
Where to look next: `verify/program/kernel_switches.py` (sets the switches), `verify/ablation/ablation.py` (what they are for).
"""

from __future__ import annotations

import hashlib
import os
import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from stitchcuda.errors import BadInput
from stitchcuda.simulator.source import Edit, apply, closing, opening
from stitchcuda.simulator.source import masked as blanked

ENTRIES = "stitchcuda_masks"               # the exported list that `verify/program/kernel_switches.py` reads
_ATTRIBUTE = re.compile(
    r"\b(?:__launch_bounds__|__cluster_dims__|__block_size__|__maxnreg__|__attribute__|__declspec|alignas|__align__"
    r"|noexcept|__minnctapersm__)\s*(?=\()"
)
_INCLUDE = re.compile(r'(?m)^(?P<before>[ \t]*#[ \t]*include[ \t]*)(?P<mark>["<])(?P<name>[^"<>\n]+)[">]')
_DIRECTIVE = re.compile(r"(?m)^[ \t]*#(?:[^\\\n]+|\\\n?)*+")
_DEFINE = re.compile(r"(?m)^[ \t]*#[ \t]*define[ \t]+(?P<name>\w+)(?P<rest>(?:[^\\\n]+|\\\n?)*+)")
_TOKEN = re.compile(r"\w+|[()\[\]{};]")
_LONGEST_HEAD = 20_000                     # characters before a kernel's body in which its name is searched

# Stands at the head of a file, whose first lines may be feature macros: so it uses only what nvcc declares by itself.
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


def add_switches(
    text: str, prefix: str, *, aliases: Iterable[str] = (), file: Path | None = None
) -> tuple[str, tuple[str, ...]]:
    """Returns (the text with a switch at the head of each kernel, the kernels' names). Text without kernels stays as it is.

    `prefix` is different for each file of a library. `aliases`: macros of other files that stand for `__global__`. The compiler
    reports the lines of the original, called `file` if that is given. Overloads and specialisations get names of their own
    (`scale`, `scale#2`); all instances of one template share a switch.
    """
    heads = kernel_definitions(text, aliases=aliases)
    if not heads:
        return text, ()
    prefix = re.sub(r"\W", "_", prefix)
    names = tuple(name for name, _ in heads)
    skip = [
        Edit(at + 1, at + 1, f" if (::stitchcuda_skipped_{prefix}({number})) return;") for number, (_, at) in enumerate(heads)
    ]
    listed = "\\n".join(name.replace("\\", "").replace('"', "") for name in names)
    prelude = _PRELUDE.replace("@", prefix).replace("$", str(len(names))).replace("%", listed)
    place = "#line 1" + (f' "{file}"' if file else "")
    return apply(text, [Edit(0, 0, f"{prelude}{place}\n"), *skip]), names


def kernel_definitions(text: str, *, aliases: Iterable[str] = ()) -> list[tuple[str, int]]:
    """Returns (name, position of the body's opening brace) of every kernel that the text defines, in its order."""
    code = blanked(text)
    words = {"__global__", *aliases, *_aliases(code)}
    spans = [hit.span() for hit in _DIRECTIVE.finditer(code)]
    found: list[tuple[str, int]] = []
    used: dict[str, int] = {}
    seen: set[int] = set()
    for head in _heads(code, words, spans):
        if head.body in seen:
            continue
        seen.add(head.body)
        name = _name(code[max(head.start, head.body - _LONGEST_HEAD) : head.body], words)
        if head.directive is not None and (macro := _DEFINE.match(code, head.directive)) is not None:
            name = macro["name"]            # a macro that expands to whole kernels: all of them share a switch
        used[name] = used.get(name, 0) + 1
        found.append((name if used[name] == 1 else f"{name}#{used[name]}", head.body))
    return found


class _Head(NamedTuple):
    """Positions of a kernel: of its declaration, of its body's brace, and of the directive that holds both, if one does."""

    start: int
    body: int
    directive: int | None


def _heads(code: str, words: Collection[str], spans: list[tuple[int, int]]) -> Iterator[_Head]:
    """Yields every `__global__`, or alias of it, that has a body. Takes time linear in the number of tokens."""
    tokens = [(hit.start(), hit.group()) for hit in _TOKEN.finditer(code)]
    partner: dict[int, int] = {}
    opened: list[int] = []
    for number, (_, word) in enumerate(tokens):
        if word in "([{":
            opened.append(number)
        elif word in ")]}" and opened:
            partner[opened.pop()] = number
    starts = [span[0] for span in spans]

    def directive(at: int) -> tuple[int, int] | None:
        span = bisect_right(starts, at) - 1
        return spans[span] if span >= 0 and at < spans[span][1] else None

    bodies: dict[int, int | None] = {}
    heads = [number for number, (_, word) in enumerate(tokens) if word in words]
    held = {number: directive(tokens[number][0]) for number in heads}
    for number in reversed(heads):
        inside, at = held[number], number + 1
        end = len(code) if inside is None else inside[1]
        body: int | None = None
        while at < len(tokens) and tokens[at][0] < end:
            position, word = tokens[at]
            if word == "{":
                body = position
            elif at in bodies and held[at] == inside:
                body = bodies[at]          # what follows from there has been looked at
            elif word in "([" and at in partner:
                at = partner[at] + 1
                continue
            elif word not in "()[]};":
                at += 1
                continue
            break
        bodies[number] = body
    for number in heads:
        at, word = tokens[number]
        inside, body = held[number], bodies[number]
        if body is not None and (inside is None or word == "__global__"):    # else an alias where it is defined
            yield _Head(at + len(word) if word == "__global__" else at, body, None if inside is None else inside[0])


def add_switches_to_files(
    sources: Sequence[Path], *, folder: Path, include_dirs: Sequence[Path] = (), within: Path | None = None
) -> tuple[list[Path], tuple[str, ...]]:
    """Returns (copies with switches of the CUDA sources, and other sources as they are; the names of all kernels).

    Headers that hold kernels are copied too, if they lie beside the sources, in `include_dirs` or in `within`. The compiler
    reports the originals' paths and lines. Copies are written to `folder`, below names that depend on their content.
    """
    made: list[Path] = []
    names: list[str] = []
    for source in sources:
        if source.suffix != ".cu":
            made.append(source)
            continue
        files = _Files(source.resolve(), folder, [*include_dirs, *([within] if within else [])], within or source.parent)
        made.append(files.written())
        names += files.kernels
    return made, tuple(dict.fromkeys(names))


class _Files:
    """A source with all headers that it reaches, each of them read and copied once."""

    def __init__(self, source: Path, folder: Path, places: Sequence[Path], own: Path) -> None:
        self._source = source
        self._places = places
        self._own = own.resolve()
        self._roots = (self._own, source.parent, *(Path(place).resolve() for place in places))
        self._texts: dict[Path, str] = {}
        self._includes: dict[Path, dict[str, Path]] = {}      # by file: the included name with its opening mark, and the header
        self._read()
        aliases = list(dict.fromkeys(alias for text in self._texts.values() for alias in _aliases(blanked(text))))
        self._masked: dict[Path, str] = {}
        self.kernels: list[str] = []
        for file, text in self._texts.items():
            key = hashlib.sha256(f"{file.name}\0{text}".encode(errors="surrogateescape")).hexdigest()[:16]
            self._masked[file], kernels = add_switches(text, f"m{key}", aliases=aliases, file=file)
            self.kernels += kernels
        whole = "\0".join(f"{file}\0{text}" for file, text in self._texts.items())
        self._folder = folder / hashlib.sha256(f"{aliases}\0{whole}".encode(errors="surrogateescape")).hexdigest()[:16]
        self._copied = frozenset(self._changed())

    def written(self) -> Path:
        """Writes copies of the source and of the headers that need one, and returns the source's."""
        for file in self._copied:
            copy = self._copy(file)
            if not copy.exists():
                copy.parent.mkdir(parents=True, exist_ok=True)
                temporary = copy.with_name(f".{copy.name}.{os.getpid()}")
                temporary.write_text(self._body(file), encoding="utf-8", errors="surrogateescape")
                os.replace(temporary, copy)
        return self._copy(self._source)

    def _read(self) -> None:
        waiting = [self._source]
        while waiting:
            file = waiting.pop()
            if file in self._texts:
                continue
            try:
                self._texts[file] = file.read_text(encoding="utf-8-sig", errors="surrogateescape")
            except OSError as error:
                raise BadInput(f"cannot read {file}: {error.strerror}") from error
            found: dict[str, Path] = {}
            for hit in _INCLUDE.finditer(self._texts[file]):
                name = hit["mark"] + hit["name"]
                if name not in found and (header := self._header(file, hit["mark"], hit["name"])) is not None:
                    found[name] = header
            self._includes[file] = found
            waiting += reversed(found.values())

    def _header(self, file: Path, mark: str, name: str) -> Path | None:
        """Returns the included file. Between angles only the program's own count: others are the toolkit's."""
        places = self._places if mark == "<" else (file.parent, *self._places)
        found = next((path for place in places if (path := (Path(place) / name).resolve()).is_file()), None)
        roots = self._roots if mark == '"' else (self._own,)
        return found if found is not None and any(found.is_relative_to(root) for root in roots) else None

    def _changed(self) -> Iterable[Path]:
        """Returns the source, the headers with kernels, and every file that includes one of these."""
        above: dict[Path, list[Path]] = {}
        for file, included in self._includes.items():
            for header in included.values():
                above.setdefault(header, []).append(file)
        waiting = [self._source, *(file for file, text in self._texts.items() if self._masked[file] != text)]
        found: dict[Path, None] = {}
        while waiting:
            file = waiting.pop()
            if file not in found:
                found[file] = None
                waiting += above.get(file, [])
        return found

    def _copy(self, file: Path) -> Path:
        if file not in self._copied:
            return file
        return self._folder / hashlib.sha256(str(file).encode(errors="surrogateescape")).hexdigest()[:16] / file.name

    def _body(self, file: Path) -> str:
        """Returns a copy's text. It includes the other copies by absolute paths, and names the original to the compiler."""
        body = f'#line 1 "{file}"\n{self._masked[file]}'

        def redirect(match: re.Match[str]) -> str:
            header = self._includes[file].get(match["mark"] + match["name"])
            return match.group() if header is None else f'{match["before"]}"{self._copy(header)}"'

        return _INCLUDE.sub(redirect, body)


def _aliases(code: str) -> list[str]:
    """Returns macros whose replacement names `__global__`, or another such macro, and holds no body."""
    users: dict[str, list[str]] = {}
    for name, rest in {match["name"]: match["rest"] for match in _DEFINE.finditer(code)}.items():
        if "{" not in rest:
            for word in set(re.findall(r"\w+", rest)):
                users.setdefault(word, []).append(name)
    found: dict[str, None] = {}
    waiting = ["__global__"]
    while waiting:
        for name in users.get(waiting.pop(), []):
            if name not in found and name != "__global__":
                found[name] = None
                waiting.append(name)
    return list(found)


def _name(head: str, words: Collection[str]) -> str:
    """Returns the kernel's name from the text between `__global__` and its body: the word before the last parameter list."""
    head = _without_attributes(re.sub(r"\\\n", " ", re.sub(r"(?m)^[ \t]*#.*$", " ", head)))
    head = re.sub(r"\)\s*->[^()]*$", ")", head)
    last = head.rfind(")")
    first = opening(head, last) if last >= 0 else -1
    if first < 0:
        return "?"
    before = head[:first].rstrip()
    if before.endswith(">") and (angle := before.find("<")) > 0:
        before = before[:angle].rstrip()    # an explicit specialisation
    word = re.search(r"(?:\w+|\w+\s*\([^()]*\))$", before[-400:])
    if word is not None and word.group() in words:
        argument = re.match(r"\(\s*(\w+)", head[first:])
        return argument.group(1) if argument else word.group()
    return re.sub(r"\s+", "", word.group()) if word else re.sub(r"\s+", "", head[first:])[:40]


def _without_attributes(head: str) -> str:
    pieces, at = [], 0
    for match in _ATTRIBUTE.finditer(head):
        if match.start() >= at:
            end = closing(head, head.index("(", match.end() - 1))
            if end < 0:
                break
            pieces.append(head[at : match.start()])
            at = end + 1
    return " ".join((*pieces, head[at:]))
