"""Decides which compiler flags a program may use, by patterns of allowed ones.

Every other flag is refused with one sentence, above all those that load or run something or read or write elsewhere. It runs
nothing.
Where to look next: `verify/program/builder_worker.py` (which gives the flags to the compilers, without a shell).
"""

from __future__ import annotations

import re
import shlex
import site
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from stitchcuda.tools.device import toolkit

_VALUE = r'[\w.:+*/%()\[\]=~", -]*'   # a macro's value: numbers, names, types, expressions; nothing that a shell interprets
_MACRO = re.compile(rf"[A-Za-z_]\w*(?:\([\w, ]*\))?(?:={_VALUE})?")
_TOGGLES = (
    "fast-math|math-errno|finite-math-only|associative-math|reciprocal-math|signed-zeros|trapping-math|unsafe-math-optimizations"
    "|unroll-loops|unroll-all-loops|openmp|openmp-simd|strict-aliasing|wrapv|exceptions|rtti|inline|inline-functions|common"
    "|tree-vectorize|tree-slp-vectorize|vectorize|omit-frame-pointer|data-sections|function-sections|semantic-interposition|plt"
    "|gnu-unique|stack-protector|permissive|concepts|coroutines|char8_t|sized-deallocation|aligned-new|builtin|prefetch-loop-arrays"
    "|peel-loops|ipa-cp-clone|gcse|lto|visibility-inlines-hidden|threadsafe-statics|asynchronous-unwind-tables|ident"
)
_HOST = re.compile(
    rf"-O(?:[0-3gsz]|fast)?|-g[0-3]?|-ggdb[0-3]?|-w|-W[A-Za-z][\w=+-]*|-pedantic|-pthread|-pipe|-f(?:PIC|pic)|-s"
    rf"|-std=(?:c|gnu)(?:\+\+)?\w+|-f(?:no-)?(?:{_TOGGLES})|-fvisibility=\w+|-ffp-contract=\w+|-fmax-errors=\d+"
    r"|-fdiagnostics-color=\w+|-ftemplate-depth=\d+|-fconstexpr-(?:depth|loop-limit|ops-limit)=\d+|-fabi-version=\d+"
    r"|-falign-(?:functions|loops)=\d+|-m(?!llvm)[a-z0-9][\w.-]*(?:=[\w.+-]+)?"
)
_LONG = re.compile(
    r"use_fast_math|lineinfo|generate-line-info|g|G|device-debug|debug|w|disable-warnings|restrict|res-usage|resource-usage"
    r"|(?:expt-)?(?:relaxed-constexpr|extended-lambda)|extra-device-vectorization|m64|Wno-[\w-]+|Wreorder|Wext-lambda-captures-this"
    r"|O[0-3]|Ofc|Ofast-compile|(?:rdc|relocatable-device-code)=false|(?:ftz|fmad|prec-div|prec-sqrt)=(?:true|false)"
    r"|(?:maxrregcount|threads|t|split-compile)=\d+|(?:default-stream)=[\w-]+|std=c\+\+\w+|(?:Werror)(?:=[\w,-]+)?"
    r"|(?:Ofast-compile|dopt)=\w+|(?:diag-(?:suppress|warn|error))=[\w,-]+|display-error-number|no-display-error-number"
    r"|(?:arch|gpu-architecture|code|gpu-code)=[\w,-]+|(?:gencode|generate-code)=arch=compute_\w+,code=[\w,\[\]]+"
    r"|source-in-ptx|no-exceptions|brief-diagnostics(?:=\w+)?|static-global-template-stub=\w+|device-entity-has-hidden-visibility=\w+"
)
_ARCHITECTURE = ("gencode", "generate-code", "arch", "gpu-architecture", "code", "gpu-code")
_TAKES_VALUE = (
    *_ARCHITECTURE, "maxrregcount", "threads", "t", "std", "ftz", "fmad", "prec-div", "prec-sqrt", "default-stream",
    "diag-suppress", "diag-warn", "diag-error", "split-compile", "dopt", "Werror", "rdc", "relocatable-device-code",
)  # fmt: skip
_WHOLE = ("-D", "-Xcompiler", "--compiler-options", "-Xptxas", "--ptxas-options", "-Xcudafe")
_PTXAS = re.compile(
    r"-v|--verbose|-O[0-4]|--opt-level=\d|-{1,2}(?:warn-spills|warn-lmem-usage|warn-double-usage|warn-on-\w[\w-]*|disable-warnings"
    r"|suppress-[\w-]+|disable-optimizer-constants|position-independent-code|Werror|g|lineinfo|w)"
    r"|-{1,2}(?:dlcm|dscm|def-load-cache|def-store-cache|force-load-cache|force-store-cache|flcm|fscm)=\w+"
    r"|-{1,2}(?:maxrregcount|register-usage-level|allow-expensive-optimizations|fmad|opt-level|fast-compile|Ofast-compile|Ofc)=\w+"
)
_LINKED = re.compile(
    r"-l[A-Za-z_][\w+.-]*|-shared|-pthread|-fopenmp|-s|-O[0-3]?|-fPIC|-lstdc\+\+fs|-Wl,--(?:no-)?as-needed|-Wl,-Bsymbolic(?:-functions)?"
    r"|-Wl,--no-undefined|-Wl,--gc-sections|-Wl,-O[0-3]|-Wl,--strip-all|-Wl,-z,(?:now|relro)|-w|-m64"
)
# A static library's kernels become part of the program's library and would count as its own. The runtime's have no kernels.
_STATIC = re.compile(r"-l(?P<name>[\w+.-]+?)_static(?:_\w+)?")
_WITHOUT_KERNELS = ("-lcudart_static", "-lculibos_static", "-lnvrtc_static", "-lnvrtc-builtins_static")
_SHORT = re.compile(r"--?(?P<kind>isystem|iquote|I|D|U)=?(?P<rest>.*)", re.DOTALL)


class FlagRefused(Exception):
    """A flag that a program may not use. The text is one sentence with the reason."""


class Flags:
    """Checks the flags of one program. Its folder `root` may hold headers, but no libraries.

    The methods return the allowed flags as the compilers get them, and raise `FlagRefused` for any other.
    """

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()

    def host(self, flags: Sequence[str]) -> tuple[str, ...]:
        """Checks flags for g++."""
        return tuple(self._checked(flags, lambda flag, rest: [flag] if _HOST.fullmatch(flag) else None))

    def cuda(self, flags: Sequence[str]) -> tuple[str, ...]:
        """Checks flags for nvcc, and each that it passes on to g++ or ptxas. Architectures are left out: the judge chooses."""
        return tuple(self._checked(flags, self._for_nvcc))

    def link(self, flags: Sequence[str]) -> tuple[str, ...]:
        """Checks flags for the linker: libraries of the toolkit, of torch and of the system."""
        allowed: list[str] = []
        rest = iter(_words(flags))
        for flag in rest:
            if flag in ("-L", "-rpath", "-Xlinker"):
                flag = f"-L{_following(flag, rest)}" if flag == "-L" else _refuse(flag)
            place = re.fullmatch(r"(?:-L|-Wl,-rpath[=,])(?P<folder>[^,]+)", flag)
            if place is not None:
                folder = Path(place["folder"])
                if not _lies_in(folder, _trusted()) or _lies_in(folder, (self._root,)):
                    raise FlagRefused(f"the flag {flag} links against libraries outside of the toolkit, torch and the system")
            elif not _LINKED.fullmatch(flag):
                _refuse(flag)
            elif (static := _STATIC.fullmatch(flag)) is not None and flag not in _WITHOUT_KERNELS:
                raise FlagRefused(
                    f"the flag {flag} links a library's kernels into the program's own, where nobody can tell whose they are; "
                    f"link the shared one: -l{static['name']}"
                )
            allowed.append(flag)
        return tuple(allowed)

    def includes(self, folders: Sequence[str]) -> tuple[Path, ...]:
        """Returns include folders as absolute paths: of the program, the toolkit, torch, tvm-ffi or the system."""
        return tuple(self._folder(folder, "the include folder") for folder in folders)

    def _folder(self, given: str, what: str) -> Path:
        folder = (self._root / given).resolve()
        if not _lies_in(folder, (self._root, *_trusted())) or re.search(r"[\0-\x1f$`;|&<>\"'\\]", str(folder)):
            raise FlagRefused(f"{what} {given} lies outside of the program; it may use its own headers and the toolkit's")
        return folder

    def _checked(self, flags: Sequence[str], known: Callable[[str, Iterator[str]], list[str] | None]) -> Iterator[str]:
        rest = iter(_words(flags))
        for flag in rest:
            short = _SHORT.fullmatch(flag)
            if short is not None:
                kind, value = short["kind"], short["rest"] or _following(flag, rest)
                if kind in ("D", "U"):
                    if not _MACRO.fullmatch(value):
                        _refuse(f"-{kind}{value}")
                    yield f"-{kind}{value}"
                elif kind == "I":
                    yield f"-I{self._folder(value, 'the include folder')}"
                else:
                    yield from (f"-{kind}", str(self._folder(value, "the include folder")))
                continue
            found = known(flag, rest)
            if found is None:
                _refuse(flag)
            yield from found or ()

    def _for_nvcc(self, flag: str, rest: Iterator[str]) -> list[str] | None:
        name, _, value = flag.lstrip("-").partition("=")
        if not flag.startswith("-"):
            return None
        if name in ("Xptxas", "ptxas-options"):
            pieces = [piece for piece in re.split(r"[,\s]+", value or _following(flag, rest)) if piece]
            for piece in pieces:
                if not _PTXAS.fullmatch(piece):
                    _refuse(f"-Xptxas {piece}")
            return [part for piece in pieces for part in ("-Xptxas", piece)]
        if name in ("Xcompiler", "compiler-options"):
            given = (value or _following(flag, rest)).strip("'\"")
            return [part for option in self.host(re.split(r"[,\s]+", given)) for part in ("-Xcompiler", option)]
        if name == "Xcudafe":
            given = (value or _following(flag, rest)).strip("'\"")
            if not re.fullmatch(r"(?:--?(?:diag_suppress|diag_warning|diag_error)=[\w,]+|--display_error_number)", given):
                _refuse(f"-Xcudafe {given}")
            return ["-Xcudafe", given]
        if not value and name in _TAKES_VALUE:
            value = _following(flag, rest)
            flag = f"{'--' if len(name) > 1 else '-'}{name}={value}"
        if not _LONG.fullmatch(flag[2:] if flag.startswith("--") else flag[1:]):
            return None
        return [] if name in _ARCHITECTURE else [flag]


def _words(flags: Sequence[str]) -> list[str]:
    """Splits flags as a shell would: torch passes them through one, so people write two in one string, or quotes."""
    words: list[str] = []
    for flag in flags:
        if re.search(r"[\0\r\n]", flag):
            _refuse(flag)
        passed_on = (words and words[-1] in _WHOLE) or flag.startswith(tuple(f"{prefix}=" for prefix in _WHOLE))
        if passed_on or (flag.startswith("-D") and not re.match(r"-D\S+\s+-", flag)):
            words.append(flag.strip())
            continue
        try:
            words += shlex.split(flag)
        except ValueError:
            _refuse(flag)
    return words


def _following(flag: str, rest: Iterator[str]) -> str:
    value = next(rest, None)
    if value is None:
        raise FlagRefused(f"the flag {flag} wants a value")
    return value


def _refuse(flag: str) -> str:
    raise FlagRefused(
        f"the flag {flag[:200]!r} is not one that a program may use; it may set optimisation, warnings, the language standard, "
        "macros, its own include folders and libraries of the toolkit"
    )


def _lies_in(path: Path, roots: Sequence[Path]) -> bool:
    real = path.resolve()
    return any(real.is_relative_to(root.resolve()) for root in roots)


def _trusted() -> tuple[Path, ...]:
    """The folders of headers and libraries of the system, the toolkit and Python's packages."""
    kit = toolkit.find_toolkit()
    folders = [Path("/usr"), Path("/lib"), Path("/lib64"), Path("/opt"), Path(sys.prefix), *map(Path, site.getsitepackages())]
    folders += [Path(folder) for folder in sys.path if folder.endswith(("site-packages", "dist-packages"))]
    return (*folders, *((kit.home, kit.nvcc.parent.parent) if kit is not None else ()))
