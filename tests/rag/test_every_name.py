"""Every name of NVIDIA's headers is found: what libclang and the libraries' own symbols know is a name of some chunk.

Public is what stands in no namespace or type called `detail...`, `internal`, `impl` or beginning with `_`, and no private part.
At global scope, where such names are instructions (`__shfl_sync`, `__nv_bfloat16`), everything counts, whatever it begins with.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest
from clang import cindex
from clang.cindex import AccessSpecifier, Cursor, CursorKind, TranslationUnit

from stitchcuda.rag.chunk import Chunk
from stitchcuda.rag.headers import places, reading
from stitchcuda.rag.headers.chunks import chunks
from stitchcuda.tools.device.toolkit import find_toolkit

pytestmark = pytest.mark.more

# Different names that libclang sees in CUDA 13.0, cuBLAS 13.0, cuDNN 9.28 and its frontend 1.32, less a tenth: an oracle that
# sees nothing shall say so.
LEAST = {
    ("cuda.h", "function"): 400, ("cuda.h", "value"): 780, ("cuda.h", "type"): 420, ("cuda.h", "macro"): 140,
    ("cuda_runtime_api.h", "function"): 270, ("cuda_runtime.h", "function"): 40, ("driver_types.h", "value"): 560,
    ("driver_types.h", "type"): 150, ("vector_types.h", "type"): 50, ("library_types.h", "value"): 40,
    ("texture_types.h", "value"): 7, ("surface_types.h", "value"): 4, ("vector_functions.h", "function"): 40,
    ("cuComplex.h", "function"): 20, ("cuda_device_runtime_api.h", "function"): 90, ("cudaTypedefs.h", "type"): 510,
    ("cudaGL.h", "function"): 10, ("cudaEGL.h", "value"): 100, ("cudaVDPAU.h", "function"): 3,
    ("crt/math_functions.h", "function"): 250, ("crt/device_functions.h", "function"): 210, ("crt/mma.h", "function"): 6,
    ("cuda_fp16.h", "function"): 190, ("cuda_bf16.h", "function"): 190, ("cuda_fp8.h", "type"): 4, ("cuda_fp4.h", "type"): 3,
    ("cuda_fp6.h", "type"): 3, ("sm_30_intrinsics.h", "function"): 15, ("sm_32_intrinsics.h", "function"): 12,
    ("sm_60_atomic_functions.h", "function"): 20, ("device_atomic_functions.h", "function"): 13,
    ("cooperative_groups.h", "function"): 60, ("cuda_pipeline.h", "type"): 1, ("cuda_awbarrier.h", "type"): 1,
    ("cublas_api.h", "function"): 470, ("cublas_api.h", "value"): 80, ("cublas_v2.h", "macro"): 280,
    ("cublas.h", "function"): 140, ("cublasXt.h", "function"): 40, ("nvblas.h", "function"): 50, ("cublasLt.h", "value"): 780,
    ("cublasLt.h", "function"): 40, ("cudnn_graph.h", "value"): 680, ("cudnn_graph.h", "function"): 20,
    ("cudnn_ops.h", "function"): 90, ("cudnn_adv.h", "function"): 40, ("cudnn_cnn.h", "function"): 40,
    ("cudnn_frontend_Operation.h", "function"): 50, ("cudnn_frontend/graph_properties.h", "function"): 220,
    ("cudnn_frontend/graph_interface.h", "function"): 100, ("cub/block/block_reduce.cuh", "type"): 2,
    ("cub/warp/warp_scan.cuh", "type"): 1, ("cub/device/device_scan.cuh", "function"): 11, ("cub/util_type.cuh", "type"): 20,
    ("cooperative_groups.h", "type"): 7,
}  # fmt: skip
NOTHING = {                                # where libclang sees none of the declarations, and why
    "cuda_pipeline_helpers.h": "types of C for NVRTC", "cuda_stdint.h": "types of C for other compilers",
    "crt/host_config.h": "a type of C for another compiler", "crt/host_runtime.h": "only in what nvcc generates",
    "thrust/pair.h": "names of libcu++", "thrust/tuple.h": "names of libcu++",
}  # fmt: skip
EXPORTED = ("libcudart.so*", "libcublas.so*", "libcublasLt.so*", "libcudnn*.so*")

_FIRST = """
#pragma clang force_cuda_host_device begin
#include <cassert>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <new>
#pragma clang force_cuda_host_device end
#include <memory>
#include <string>
#include <vector>
"""                                        # C's functions count for the device too, or libclang refuses CUDA's own
_GRAPHICS = [                              # of what no machine without a screen has
    ("/shim/GL/gl.h", "typedef unsigned GLuint; typedef unsigned GLenum; typedef int GLint;\n"),
    ("/shim/EGL/egl.h", "typedef void *EGLImageKHR, *EGLStreamKHR, *EGLSyncKHR; typedef int EGLint;\n"),
    ("/shim/EGL/eglext.h", "\n"),
    ("/shim/vdpau/vdpau.h", "typedef unsigned VdpDevice, VdpFuncId, VdpVideoSurface, VdpOutputSurface; typedef int VdpStatus;\n"
                            "typedef VdpStatus VdpGetProcAddress(VdpDevice, VdpFuncId, void **);\n"),
]  # fmt: skip
_KEEP_GOING = 0x200                        # behind a header that is not there, such as NVRTC's; cindex has no name for it
_FUNCTIONS = {CursorKind.FUNCTION_DECL, CursorKind.FUNCTION_TEMPLATE, CursorKind.CXX_METHOD}
_TYPES = {
    CursorKind.STRUCT_DECL, CursorKind.UNION_DECL, CursorKind.CLASS_DECL, CursorKind.CLASS_TEMPLATE,
    CursorKind.CLASS_TEMPLATE_PARTIAL_SPECIALIZATION,
}  # fmt: skip
_TYPEDEFS = {CursorKind.TYPEDEF_DECL, CursorKind.TYPE_ALIAS_DECL, CursorKind.TYPE_ALIAS_TEMPLATE_DECL}


class Name(NamedTuple):
    """What libclang knows of a declaration. `kind` is a chunk's; enums, too, are types."""

    header: str
    kind: str
    name: str                              # of a method with its class
    parameters: frozenset[str] = frozenset()


class Found(NamedTuple):
    """By library and name, with any number of enclosing namespaces: the kinds and texts of the chunks."""

    kinds: dict[tuple[str, str], set[str]]
    texts: dict[tuple[str, str], list[str]]


@pytest.fixture(scope="module")
def files() -> dict[str, Path]:
    kit = find_toolkit()
    assert kit is not None
    there = places.headers(kit).files
    return {name: path for name, path in there.items() if places.library_of(name) != "CUTLASS"}


@pytest.fixture(scope="module", autouse=True)
def units(files: Mapping[str, Path]) -> Iterator[list[Future[TranslationUnit]]]:
    """libclang's readings, under way while the product reads: first all as CUDA, then what needs other settings."""
    includes = subprocess.run(["g++", "-E", "-x", "c++", "-v", "/dev/null"], capture_output=True, text=True, check=True).stderr
    _, _, searched = includes.partition("#include <...> search starts here:\n")
    folders = list(dict.fromkeys(str(path)[:-len(name) - 1] for name, path in files.items()))
    flags = [
        "-std=c++17", "-w", "-ferror-limit=0", "-nostdinc", "-nostdinc++", *(f"-I{folder}" for folder in folders), "-I/shim",
        *(f"-isystem{line.strip()}" for line in searched.partition("End of search list")[0].splitlines()),
    ]  # fmt: skip
    cuda = [*flags, "-x", "cuda", "-nocudainc", "-nocudalib", "-D__CUDACC__", "-D__NVCC__", "-D__CUDACC_VER_MAJOR__=13"]
    device = [*cuda, "--cuda-device-only", "--cuda-gpu-arch=sm_90a", "-U__CUDA_ARCH__", "-D__CUDA_ARCH__=1000"]
    host = [*cuda, "--cuda-host-only", "--cuda-gpu-arch=sm_60"]
    plain = [*flags, "-x", "c++"]
    # The toolkit's own come first, so that nobody brings copies of them. cuBLAS' two interfaces exclude each other.
    own = str(files["cuda.h"].parent)
    every = sorted(files.keys() - {"cublas.h"})
    every.sort(key=lambda name: (name != "cuda_runtime.h", not str(files[name]).startswith(own), name != "cudnn_frontend.h"))
    every.sort(key=lambda name: ("/" in name, name.endswith(".hpp")))
    flat = [name for name in every if "/" not in name and "frontend" not in name]
    old = [name for name in ("cublas.h",) if name in files]
    jobs = [(device, every), (host, flat), (plain, [name for name in flat if name.endswith(".h")]), (plain, old)]
    with ThreadPoolExecutor(2) as threads:
        yield [threads.submit(_parsed, kind, [files[name] for name in names], macros=kind is plain) for kind, names in jobs]


@pytest.fixture(scope="module")
def known(files: Mapping[str, Path], units: list[Future[TranslationUnit]]) -> set[Name]:
    headers = {os.path.normpath(path): name for name, path in files.items()}
    return {name for unit in units for name in _Walk(headers).names(unit.result().cursor, ())}


@pytest.fixture(scope="module")
def found(files: Mapping[str, Path]) -> Found:
    unread: list[str] = []
    made = chunks(reading.read(files, unread), places.versions(dict(files)))
    assert unread == []
    return _found(made)


def test_the_oracle_sees_the_headers(files: Mapping[str, Path], found: Found, known: set[Name]) -> None:
    count: dict[tuple[str, str], int] = defaultdict(int)
    for name in known:
        count[name.header, name.kind] += 1
    here = {places.library_of(header) for header in files}
    short = {of: count[of] for of, least in LEAST.items() if places.library_of(of[0]) in here and count[of] < least}
    assert short == {}
    seen = {name.header for name in known}
    entries = reading.read({name: files[name] for name in files if name not in seen and not name.startswith("cuda/")}, [])
    assert {entry.header for entry in entries if entry.kind not in ("macro", "variable")} <= NOTHING.keys()


def test_every_name_is_found(known: set[Name], found: Found) -> None:
    missing = sorted(name[:3] for name in known if (places.library_of(name.header), name.name) not in found.kinds)
    assert missing == []


def test_functions_and_values_are_found_as_such(known: set[Name], found: Found) -> None:
    """Not only as a field that happens to have that name."""
    asked = [(name, found.kinds.get((places.library_of(name.header), name.name), set())) for name in known]
    assert sorted(name[:3] for name, kinds in asked if name.kind in ("function", "value") and name.kind not in kinds) == []


def test_declarations_have_all_their_parameters(known: set[Name], found: Found) -> None:
    shown: dict[tuple[str, str, int], bool] = defaultdict(bool)        # for Windows crt/math_functions.h has other names
    for name in known:
        texts = found.texts.get((places.library_of(name.header), name.name), [])
        whole = any(name.parameters <= set(re.findall(r"\w+", text)) or "more overloads)" in text for text in texts)
        shown[places.library_of(name.header), name.name, len(name.parameters)] |= whole or not name.parameters
    assert sorted(of for of, whole in shown.items() if not whole and of[1] not in ("to_json", "from_json")) == []   # a macro's


def test_every_symbol_of_the_libraries_is_found(files: Mapping[str, Path], found: Found) -> None:
    nm = shutil.which("nm")
    if nm is None:
        pytest.skip("nm of binutils is not on this machine")
    roots = {Path(str(path)[:-len(name) - 1]).parent for name, path in files.items()}
    libraries = {path.resolve() for root in roots for folder in ("lib", "lib64") for one in EXPORTED
                 for path in (root / folder).glob(one)}  # fmt: skip
    if not libraries:
        pytest.skip("of these libraries only the headers are here: " + ", ".join(sorted(map(str, roots))))
    code = [re.sub(r"/\*.*?\*/|//[^\n]*", " ", path.read_text("utf-8", "replace"), flags=re.DOTALL) for path in files.values()]
    words = {word for text in code for word in re.findall(r"\b[A-Za-z]\w+\b", text)}
    command = [nm, "-D", "--defined-only", *sorted(map(str, libraries))]
    said = subprocess.run(command, capture_output=True, text=True, check=True)
    symbols = {line.split()[-1].partition("@")[0] for line in said.stdout.splitlines() if len(line.split()) == 3}
    asked = {symbol for symbol in symbols & words if re.match(r"cu[A-Zbd]", symbol)}
    assert len(asked) > 300
    assert sorted(asked - {name for _, name in found.kinds}) == []


def test_all_libraries_are_looked_at(files: Mapping[str, Path]) -> None:
    """The tests above are about what is here: `make test` installs what is asked for here."""
    assert {"cuda.h", "cublas_v2.h", "cublasLt.h", "cudnn.h", "cudnn_frontend.h"} - files.keys() == set()


def _parsed(flags: list[str], files: list[Path], *, macros: bool) -> TranslationUnit:
    source = _FIRST * (not macros) + "".join(f'#include "{path}"\n' for path in files)
    options = TranslationUnit.PARSE_SKIP_FUNCTION_BODIES | TranslationUnit.PARSE_INCOMPLETE | _KEEP_GOING
    options |= TranslationUnit.PARSE_DETAILED_PROCESSING_RECORD * macros
    name = "all.cpp" if macros else "all.cu"
    return cindex.Index.create().parse(name, flags, [(name, source), *_GRAPHICS], options)


class _Walk:
    """Through what a translation unit declares in our headers."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        self.headers = headers
        self.of: dict[str, str] = {}
        self.inline = cindex.conf.lib.clang_Cursor_isInlineNamespace
        self.inline.argtypes, self.inline.restype = [Cursor], ctypes.c_uint

    def names(self, around: Cursor, inside: tuple[str, ...]) -> Iterator[Name]:
        children = list(around.get_children())
        private = {one.spelling for one in children if _private(one)}
        renamed = {one.underlying_typedef_type.get_declaration().spelling: one.spelling for one in children
                   if inside and one.kind is CursorKind.TYPEDEF_DECL}  # fmt: skip
        for one in children:
            if one.kind in (CursorKind.LINKAGE_SPEC, CursorKind.UNEXPOSED_DECL):
                yield from self.names(one, inside)
            elif not (header := self._header(one)) or _private(one):
                continue
            elif one.kind is CursorKind.NAMESPACE and (self.inline(one) or re.fullmatch(r"__v\d+", one.spelling)):
                yield from self.names(one, inside)
            elif not _internal((*inside, one.spelling)):
                if one.kind is CursorKind.NAMESPACE:
                    yield from self.names(one, (*inside, one.spelling))
                elif not (one.kind in _TYPES and one.spelling in private):      # nor a specialisation of what is private
                    yield from self._declared(one, header, inside, renamed.get(one.spelling, one.spelling))

    def _declared(self, one: Cursor, header: str, inside: tuple[str, ...], called: str) -> Iterator[Name]:
        unnamed = not one.spelling or "(" in one.spelling
        if one.kind in _FUNCTIONS and re.fullmatch(r"(?!operator\b)\w+", one.spelling):
            if one.semantic_parent == one.lexical_parent or one.semantic_parent.kind not in _TYPES:      # else its class has it
                within = inside[-1:] if one.semantic_parent.kind in _TYPES else ()
                parameters = frozenset(each.spelling for each in one.get_children() if each.kind is CursorKind.PARM_DECL) - {""}
                yield Name(header, "function", "::".join((*within, one.spelling)), parameters)
        elif one.kind in _TYPES and one.is_definition():
            if not unnamed:
                yield Name(header, "type", one.spelling)
            yield from self.names(one, inside if unnamed else (*inside, called))
        elif one.kind is CursorKind.ENUM_DECL and one.is_definition():
            if not unnamed:
                yield Name(header, "type", one.spelling)
            for each in one.get_children():
                if each.kind is CursorKind.ENUM_CONSTANT_DECL:
                    yield Name(header, "value", each.spelling)
        elif one.kind in _TYPEDEFS:
            yield Name(header, "type", one.spelling)
        elif one.kind is CursorKind.MACRO_DEFINITION and not one.spelling.startswith("_") and len(list(one.get_tokens())) > 1:
            yield Name(header, "macro", one.spelling)

    def _header(self, one: Cursor) -> str:
        file = one.location.file
        path = file.name if file else ""
        if path not in self.of:
            self.of[path] = self.headers.get(os.path.normpath(path), "")
        return self.of[path]


def _private(one: Cursor) -> bool:
    return one.access_specifier in (AccessSpecifier.PRIVATE, AccessSpecifier.PROTECTED)


def _internal(names: tuple[str, ...]) -> bool:
    spaces = names[:-1] if len(names) > 1 else ()
    hidden = any(re.match(r"_|\w*details?(?:_|$)|(?:internal|impl)$", space) for space in spaces)
    return hidden or (bool(spaces) and names[-1].startswith("_"))


def _found(made: list[Chunk]) -> Found:
    kinds: dict[tuple[str, str], set[str]] = defaultdict(set)
    texts: dict[tuple[str, str], list[str]] = defaultdict(list)
    for chunk in made:
        for name in chunk.names:
            parts = name.split("::")
            for first in range(len(parts)):
                of = chunk.library, "::".join(parts[first:])
                kinds[of].add(chunk.kind)
                texts[of].append(chunk.text)
    return Found(dict(kinds), dict(texts))
