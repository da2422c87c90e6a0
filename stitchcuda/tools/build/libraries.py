"""Finds NVIDIA's libraries that a program's sources include: headers, shared libraries, and what to link.

It reads include lines and looks for files in the places of `Places`, which a program cannot change. It compiles and installs
nothing. Static libraries are never used: their kernels could not be told from the program's own.
Where to look next: `tools/build/nvcc.py` (which compiles with the result), `tools/build/build_flags.py` (which flags a program
may use).
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import site
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from pydantic import Field

from stitchcuda import remedies
from stitchcuda.simulator.source import masked
from stitchcuda.state import Record
from stitchcuda.tools.build import kernel_names
from stitchcuda.tools.build.bindings import Binding
from stitchcuda.tools.device.toolkit import Toolkit

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"](?P<name>[^<>"\n]+)[">]', re.MULTILINE)
_ABSENT = re.compile(r"fatal error: (?P<name>[^\s:]+): No such file")
_MACHINE = platform.machine()
_FOLDERS = ("lib64", "lib", f"lib/{_MACHINE}-linux-gnu", f"targets/{_MACHINE.replace('aarch64', 'sbsa')}-linux/lib")
# Compilers search these by themselves. If /usr/include were named again, C++'s headers would not find the C library's.
_DEFAULT = (Path("/usr/include"), Path("/usr/local/include"), Path(f"/usr/include/{_MACHINE}-linux-gnu"))
_DEFAULT_LIBRARIES = (Path("/usr/lib"), Path("/usr/lib64"), Path(f"/usr/lib/{_MACHINE}-linux-gnu"), Path("/usr/local/lib"))


class Family(NamedTuple):
    """One of NVIDIA's libraries, with the headers and shared libraries that belong to it."""

    name: str
    headers: re.Pattern[str]               # matches the names by which its headers are included
    probe: str                             # a header that its include folder must hold
    extra: str                             # the extra of the package cuda-toolkit that installs it
    package: str = ""                      # its own package, if there is no extra; {} is CUDA's major version
    links: tuple[tuple[str, tuple[str, ...]], ...] = ()      # (pattern of headers, libraries that they need); the first counts
    variables: tuple[str, ...] = ()        # environment variables that name its root
    wheels: tuple[str, ...] = ()           # its roots below site-packages; {} is CUDA's major version
    includes: tuple[str, ...] = ("include",)  # candidates for its include folder, below a root
    also: tuple[str, ...] = ()             # further include folders, below a root
    version: str = ""                      # the header that changes with its version, if that is not the probe
    needs: tuple[str, ...] = ()            # families whose headers and libraries it needs
    headers_of: tuple[str, ...] = ()       # families whose headers alone it needs
    cuda_flags: tuple[str, ...] = ()       # flags without which its headers do not compile


_TOOLKIT_WHEEL = "nvidia/cu{}"
# Layouts: those of the wheels nvidia-cublas 13.1, nvidia-cudnn-cu13 9.24, nvidia-cudnn-frontend 1.32, nvidia-cutlass 4.2.
FAMILIES = (
    Family(
        "cuBLAS", re.compile(r"(?:cublas\w*|nvblas)\.h"), "cublas_api.h", "cublas", "nvidia-cublas-cu{}",
        links=((r"cublasLt\.h", ("cublasLt",)), (r".*", ("cublas", "cublasLt"))), wheels=(_TOOLKIT_WHEEL, "nvidia/cublas"),
    ),
    Family(
        "cuDNN", re.compile(r"cudnn(?!_frontend)\w*\.h"), "cudnn_version.h", "", "nvidia-cudnn-cu{}",
        links=((r".*", ("cudnn",)),), variables=("CUDNN_PATH", "CUDNN_HOME"), wheels=("nvidia/cudnn",),
        includes=("include", f"include/{_MACHINE}-linux-gnu"),
    ),
    Family(
        "cuDNN's frontend", re.compile(r"cudnn_frontend(?:\w*\.h|/.+)"), "cudnn_frontend.h", "", "nvidia-cudnn-frontend",
        variables=("CUDNN_FRONTEND_PATH",), wheels=(".",), version="cudnn_frontend_version.h",
        needs=("cuDNN",), headers_of=("NVRTC",),
    ),
    Family(
        "CUTLASS", re.compile(r"(?:cutlass|cute)/.+"), "cutlass/cutlass.h", "", "--no-deps nvidia-cutlass",
        variables=("CUTLASS_PATH", "CUTLASS_HOME"), wheels=("cutlass_library/source", "flashinfer/data/cutlass"),
        also=("tools/util/include",), version="cutlass/version.h", cuda_flags=("--expt-relaxed-constexpr",),
    ),
    Family(
        "CCCL", re.compile(r"(?:cub|thrust|cuda|nv)/.+"), "cub/version.cuh", "cccl", "nvidia-cuda-cccl-cu{}",
        wheels=(_TOOLKIT_WHEEL, "nvidia/cuda_cccl"), includes=("include/cccl", "include"),
    ),
    Family(
        "NVRTC", re.compile(r"nvrtc\.h"), "nvrtc.h", "nvrtc", "nvidia-cuda-nvrtc-cu{}",
        links=((r".*", ("nvrtc",)),), wheels=(_TOOLKIT_WHEEL, "nvidia/cuda_nvrtc"),
    ),
    Family(
        "cuRAND", re.compile(r"curand\w*\.h"), "curand_kernel.h", "curand", "nvidia-curand-cu{}",
        links=((r"curand\.h", ("curand",)),), wheels=(_TOOLKIT_WHEEL, "nvidia/curand"),
    ),
    Family(
        "cuFFT", re.compile(r"cufft\w*\.h"), "cufft.h", "cufft", "nvidia-cufft-cu{}",
        links=((r".*", ("cufft",)),), wheels=(_TOOLKIT_WHEEL, "nvidia/cufft"),
    ),
    Family(
        "cuSPARSE", re.compile(r"cusparse\w*\.h"), "cusparse.h", "cusparse", "nvidia-cusparse-cu{}",
        links=((r".*", ("cusparse",)),), wheels=(_TOOLKIT_WHEEL, "nvidia/cusparse"),
    ),
    Family(
        "cuSOLVER", re.compile(r"cusolver\w*\.h"), "cusolverDn.h", "cusolver", "nvidia-cusolver-cu{}",
        links=((r".*", ("cusolver",)),), wheels=(_TOOLKIT_WHEEL, "nvidia/cusolver"),
    ),
)  # fmt: skip

_TORCHS = ("cuBLAS", "cuSPARSE", "cuSOLVER")              # ATen/cuda/CUDAContext.h includes their headers; torch links them


class Places(Record):
    """Where libraries are looked for, in this order: the variables' roots, the toolkit, Python's packages, the system."""

    variables: dict[str, str]              # of the environment, by name
    toolkit: tuple[Path, ...]              # roots, each with include/ and lib64/ or lib/
    packages: tuple[Path, ...]             # folders of Python packages
    system: tuple[Path, ...]               # roots
    version: str                           # nvcc's, such as "13.0.88"
    included: tuple[Path, ...] = ()        # include folders that the compilers search anyway


class Libraries(Record):
    """The libraries that sources need beyond the toolkit's core, and how to compile and link with them."""

    names: tuple[str, ...] = ()            # of the families that were found
    includes: tuple[Path, ...] = ()        # to be searched after the toolkit's own headers
    cuda_flags: tuple[str, ...] = ()
    link: tuple[str, ...] = ()             # linker flags
    replaced: tuple[str, ...] = ()         # flags that `link` replaces: `-lcublasLt` does not find `libcublasLt.so.13`
    folders: tuple[Path, ...] = ()         # which compilers and linker must be able to read
    version: str = ""                      # changes with the files that are found
    missing: dict[str, str] = Field(default={})  # by family that was not found, one sentence with the remedy
    unlinked: dict[str, str] = Field(default={})  # by library of which only the headers were found, likewise

    def ldflags(self, given: Sequence[str]) -> tuple[str, ...]:
        """Returns a program's own linker flags without those that `link` replaces."""
        return tuple(flag for flag in given if flag not in self.replaced)


def included_headers(files: Iterable[Path]) -> frozenset[str]:
    """Returns the names of all headers that the files include outside of comments, under whatever condition."""
    texts = (masked(file.read_text("utf-8", "replace"), literals=False) for file in files)
    return frozenset(found["name"].strip() for text in texts for found in _INCLUDE.finditer(text))


def places(kit: Toolkit) -> Places:
    """Returns the places of this process' environment."""
    roots = [kit.home, kit.nvcc.resolve().parent.parent, *(folder.parent for folder in kit.includes)]
    roots += [Path(os.environ[name]) for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    packages = [Path(folder) for folder in (*site.getsitepackages(), site.getusersitepackages(), *sys.path) if folder]
    names = {name for family in FAMILIES for name in family.variables}
    return Places(
        variables={name: os.environ[name] for name in sorted(names) if os.environ.get(name)},
        toolkit=tuple(dict.fromkeys((*roots, Path("/usr/local/cuda")))),
        packages=tuple(folder for folder in dict.fromkeys(packages) if folder.is_dir()),
        system=(Path(sys.prefix), Path("/usr/local"), Path("/usr")),
        version=kit.version,
        included=kit.includes,
    )


def find(headers: Iterable[str], where: Places, *, ldflags: Sequence[str] = ()) -> Libraries:
    """Finds the libraries that these headers need, and those that a program's own linker flags name.

    A family counts if one of its headers is included, one of its libraries is named, or an included family needs it.
    """
    names = sorted(headers)
    wanted = {family.name: [name for name in names if family.headers.fullmatch(name)] for family in FAMILIES}
    named = {flag for family in FAMILIES for member in _linkable(family) if (flag := f"-l{member}") in ldflags}
    found: dict[str, _Found] = {}
    missing: dict[str, str] = {}
    through_torch = any(name.startswith("ATen/cuda/") for name in names)
    for family in FAMILIES:
        above = [member for member in FAMILIES if wanted[member.name]]
        below = any(family.name in member.needs for member in above)
        beside = any(family.name in member.headers_of for member in above) or (through_torch and family.name in _TORCHS)
        asked = [member for member in _linkable(family) if f"-l{member}" in named]
        if wanted[family.name] or below or beside or asked:
            libraries = [*asked, *(member for header in wanted[family.name] for member in _needed(family, header))]
            libraries += _linkable(family) if below else []
            place = _place(family, tuple(dict.fromkeys(libraries)), where)
            if place is None:
                missing[family.name] = _sentence(family, where)
            else:
                found[family.name] = place
    new = [folder for member in found.values() for folder in member.includes if folder not in (*where.included, *_DEFAULT)]
    return Libraries(
        names=tuple(found),
        includes=tuple(dict.fromkeys(new)),
        cuda_flags=tuple(flag for family in FAMILIES if family.name in found for flag in family.cuda_flags),
        link=tuple(dict.fromkeys(flag for member in found.values() for flag in member.link)),
        replaced=tuple(sorted(f"-l{library}" for member in found.values() for library in member.libraries)),
        folders=tuple(dict.fromkeys(folder for member in found.values() for folder in member.folders)),
        version=" ".join(f"{name} {member.version}" for name, member in found.items()),
        missing=missing,
        unlinked={library: why for member in found.values() for library, why in member.unlinked.items()},
    )


def extend(binding: Binding, found: Libraries) -> Binding:
    """Returns the binding with the folders and flags of `found` added to it."""
    more = tuple(part for folder in found.includes for part in ("-isystem", str(folder)))
    return binding.model_copy(update={
        "version": f"{binding.version} {found.version}".strip(),
        "includes": (*binding.includes, *more),
        "cuda_flags": (*binding.cuda_flags, *(flag for flag in found.cuda_flags if flag not in binding.cuda_flags)),
        "link": (*binding.link, *found.link),
        "folders": (*binding.folders, *found.folders),
    })  # fmt: skip


def explain_missing(log: str, found: Libraries, where: Places) -> str:
    """Returns the compiler's errors; before them, for each library whose header was not found, how to install it."""
    absent = [name["name"] for name in _ABSENT.finditer(log)]
    others = [family for family in FAMILIES if family.name not in found.names]
    families = [family for family in others if any(family.headers.fullmatch(name) for name in absent)]
    return "\n".join((*(_sentence(family, where) for family in families), log))


def explain_unlinked(found: Libraries, objects: Iterable[Path]) -> str:
    """Returns why the objects cannot be linked, if they call a library that was not found; else "".

    The objects' undefined symbols decide, since a condition may have kept an included header out.
    """
    if not found.unlinked:
        return ""
    calls = {name for path in objects for name in kernel_names.undefined_symbols(path)}
    return "; ".join(why for library, why in found.unlinked.items() if any(name.startswith(library) for name in calls))


class _Found(NamedTuple):
    includes: tuple[Path, ...]
    libraries: tuple[str, ...]
    link: tuple[str, ...]
    folders: tuple[Path, ...]
    version: str
    unlinked: dict[str, str]


def _place(family: Family, libraries: tuple[str, ...], where: Places) -> _Found | None:
    """Returns the first place with the headers and all libraries; else the first with the headers, and what it lacks."""
    first: _Found | None = None
    for root in _roots(family, where):
        include = next((root / name for name in family.includes if (root / name / family.probe).is_file()), None)
        if include is None:
            continue
        headers = (include, *(root / name for name in family.also if (root / name).is_dir()))
        files = {library: file for library in libraries if (file := _library(root, library)) is not None}
        lacking = [name for name in libraries if name not in files]
        lacks = f"{include} has {family.name}'s headers, but lib{{}}.so is not with them; {_remedy(family, where)}"
        found = _Found(
            includes=headers,
            libraries=tuple(files),
            link=tuple(dict.fromkeys(flag for name, file in files.items() for flag in _link(name, file))),
            folders=tuple(dict.fromkeys((*headers, *(file.parent for file in files.values())))),
            version=f"{hashlib.sha256((include / (family.version or family.probe)).read_bytes()).hexdigest()[:12]} "
            f"{','.join(str(file) for file in files.values())}",
            unlinked={name: lacks.replace("{}", name) for name in lacking},
        )
        if not lacking:
            return found
        first = first or found
    return first


def _roots(family: Family, where: Places) -> list[Path]:
    major = where.version.partition(".")[0]
    named = [Path(where.variables[name]) for name in family.variables if name in where.variables]
    wheels = [root / wheel.format(major) for root in where.packages for wheel in family.wheels]
    return [*named, *where.toolkit, *wheels, *where.system]


def _library(root: Path, name: str) -> Path | None:
    """Returns the shared library below `root`: libNAME.so, else libNAME.so.VERSION of the highest version."""
    for folder in (root / relative for relative in _FOLDERS):
        if (link := folder / f"lib{name}.so").is_file():
            return link
        versions = [file for file in folder.glob(f"lib{name}.so.*") if re.fullmatch(r"[\d.]+", file.name.partition(".so.")[2])]
        if versions:
            return max(versions, key=lambda file: [int(part) for part in file.name.partition(".so.")[2].split(".") if part])
    return None


def _link(name: str, file: Path) -> tuple[str, ...]:
    flag = f"-l{name}" if file.name == f"lib{name}.so" else f"-l:{file.name}"
    if file.parent in _DEFAULT_LIBRARIES:
        return (flag,)
    return (f"-L{file.parent}", f"-Wl,-rpath,{file.parent.resolve()}", flag)


def _linkable(family: Family) -> tuple[str, ...]:
    return tuple(dict.fromkeys(library for _, libraries in family.links for library in libraries))


def _needed(family: Family, header: str) -> tuple[str, ...]:
    return next((libraries for pattern, libraries in family.links if re.fullmatch(pattern, header)), ())


def _sentence(family: Family, where: Places) -> str:
    looked = [f"in {name}" for name in family.variables if name in where.variables]
    return (
        f"{family.name} is not on this machine (looked {', '.join((*looked, 'in the toolkit'))}, Python's packages and "
        f"{where.system[-1]}); {_remedy(family, where)}"
    )


def _remedy(family: Family, where: Places) -> str:
    major, minor = (*where.version.split("."), "0")[:2]
    packages = [f"cuda-toolkit[{family.extra}]=={major}.{minor}.*"]
    if not family.extra or int(major) < 13:
        packages = family.package.format(major).split()
    named = f", or name its root in {family.variables[0]}" if family.variables else ""
    return f"install it with: {remedies.install(*packages)}{named}"
