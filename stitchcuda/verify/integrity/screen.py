"""Screens a program's sources without running them: refuses constructs that no honest program needs, notes suspicious ones.

The screen is the first of several defences: what it lets through still runs in the sandbox, is compared, ablated kernel by
kernel and timed by two clocks. It looks at what code does (interpreter internals, replaced functions, code or binaries that are
not in the source), never at how things are named. The tables at the top of this file are the rules for Python.
Where to look next: `verify/integrity/screen_native.py` (rules for C++ and CUDA), `verify/integrity/screen_expressions.py`
(strings made of constants), `verify/integrity/tampering.py` (which watches the same things while the program runs).
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

from stitchcuda.compiler.printing.program import loader_text
from stitchcuda.compiler.syntax import parse_module
from stitchcuda.counts import counted
from stitchcuda.state import Record
from stitchcuda.verify.integrity import screen_native
from stitchcuda.verify.integrity.screen_expressions import find_harmless_modules, find_inert_strings, find_scopes, fold
from stitchcuda.verify.integrity.screen_native import Severity

_BINARY = (".so", ".o", ".a", ".cubin", ".fatbin", ".ptx", ".pyc", ".pkl", ".bin")
_SOURCES = (".cu", ".cuh", ".cc", ".cpp", ".cxx", ".c", ".h", ".hpp", ".inl", ".inc")
_BLOB = re.compile(r"(?<![!-~])[!-~]{1500,}")  # a single word of that length: base64, base85, hexadecimal
LONGEST = {".py": 2 * 2**20}               # bytes of a source, so that reading it does not take all of the judge's time
_LONG, _LONG_ALL = 8 * 2**20, 64 * 2**20   # bytes of any other source, and of all together
_LONGEST_ORIGIN = 250                      # characters of a dotted name that starts at an import
_MOST_FOUND = 20                           # findings of one severity in a file that are reported one by one
# Attributes and functions by which Python code reaches frames, other objects or the code of functions that are not its own.
_INTERNALS = frozenset((
    "f_back", "f_locals", "f_globals", "f_builtins", "tb_frame", "gi_frame", "cr_frame", "ag_frame", "_getframe",
    "_getframemodulename", "_current_frames", "_current_exceptions", "currentframe", "getouterframes", "getinnerframes",
    "walk_stack", "extract_stack", "get_objects", "get_referrers", "get_referents", "__subclasses__", "__globals__",
    "__closure__", "cell_contents", "__code__", "__self__", "__func__", "co_code", "settrace", "setprofile", "pythonapi",
    "addaudithook",
))  # fmt: skip
# With these, torch operators escape the modes that count them.
_UNSEEN = frozenset((
    "_python_dispatch", "_disable_current_modes", "_get_current_dispatch_mode", "_pop_mode", "_pop_mode_temporarily",
    "_pop_torch_dispatch_stack", "_push_on_torch_dispatch_stack", "_get_dispatch_stack_at", "_len_torch_dispatch_stack",
    "_DisableTorchDispatch", "_DisableFuncTorch", "DisableTorchFunctionSubclass", "DisableTorchFunction",
    "_ExcludeDispatchKeyGuard", "_IncludeDispatchKeyGuard", "_ForceDispatchKeyGuard", "_AutoDispatchBelowAutograd",
    "_disable_profiler", "_enable_profiler", "_prepare_profiler", "_disable_profiler_legacy", "_enable_profiler_legacy",
    "_toggle_collection_dynamic", "_enable_record_function", "_set_empty_test_observer", "_RecordFunctionFast",
    "_dispatch_call_boxed", "_only_lift_cpu_tensors", "__torch_dispatch__",
))  # fmt: skip
_BY_ADDRESS = frozenset(("from_address", "memmove", "memset", "string_at", "wstring_at", "from_buffer", "cast"))
_DECODES = ("base64.", "zlib.", "lzma.", "bz2.", "gzip.", "binascii.", "codecs.decode", "marshal.", "pickle.", "cloudpickle.")
_ENCODES = re.compile(r"\.(?:crc32|adler32|crc_hqx|hexlify|compress|dumps?|\w*encode\w*|b2a_\w+|\w*Error)$")
_IMPORTS = ("importlib.import_module", "__import__", "builtins.__import__", "pkgutil.resolve_name")
_BUILTINS = ("exec", "eval", "compile")    # only as plain names: `self.compile()` and `model.eval()` are allowed
_OF_BUILTINS = ("builtins", "builtins.__dict__")
_STORES = ("update", "pop", "setdefault", "clear", "popitem", "__setitem__", "__delitem__", "__ior__", "__setattr__")
_READS = {*_BUILTINS, "marshal.loads", "types.CodeType", "types.FunctionType", "runpy.run_path", "code.interact"}
_REMOVALS = ("os.remove", "os.unlink", "os.rmdir", "os.removedirs", "shutil.rmtree")
_REMOVING = ("unlink", "rmdir", "rmtree")  # methods, for example of a path
_SPAWNS = ("subprocess", "multiprocessing", "socket", "urllib", "http", "requests", "pip", "ptyprocess", "pexpect")
# At the begin of a string, or quoted, assigned or passed in it; in the middle of prose a path is harmless.
_PRIVATE_PATH = re.compile(
    r"(?:^|[\"'`=:(,\[<>|;&])\s*(?P<path>/(?:(?:proc|dev/+shm|dev/+fd|sys/+class)\b"
    r"|(?:[^\s\"']{0,200}\.\./[/.]{0,50}|[/.]{1,50})(?:proc|dev/+shm|dev/+fd|sys/+class)/)[^\s\"']*)"
)
_HARMLESS_PROC = ("/proc/cpuinfo", "/proc/meminfo", "/proc/driver/nvidia/version")
_SETTINGS = ("torch.backends.", "torch.autograd.", "torch._dynamo.config", "torch._inductor.config", "sys.path", "os.environ")
_VERIFIERS = re.compile(screen_native.VERIFIERS)


class ScreenFinding(Record):
    """One finding of the screen. "refused": the program is not judged further; "noted": the finding goes into the report."""

    severity: Severity
    where: str                             # "model_new.py line 12"
    what: str                              # the rest of a sentence that begins with `where`: "imports ctypes"

    @property
    def sentence(self) -> str:
        return f"{self.where} {self.what}"


def screen(program: Path) -> tuple[ScreenFinding, ...]:
    """Screens a program's folder or file; returns the findings, refusals first. It reads text and runs nothing."""
    files = sorted(path for path in program.rglob("*") if path.is_file()) if program.is_dir() else [program]
    root = program if program.is_dir() else program.parent
    texts: dict[str, str] = {}
    found: list[ScreenFinding] = []
    for path in files:
        name = str(path.relative_to(root))
        if path.suffix in _BINARY:
            found.append(_found("refused", name, 0, "is not source: a program is built from its sources only"))
        elif path.suffix == ".py" or path.suffix in _SOURCES:
            if (size := path.stat().st_size) > (most := LONGEST.get(path.suffix, _LONG)):
                what = f"is longer ({size / 2**20:.1f} MiB) than a source may be ({most >> 20} MiB)"
                found.append(_found("refused", name, 0, what))
            else:
                texts[name] = path.read_text(errors="replace")
        elif path.open("rb").read(4) == b"\x7fELF":
            found.append(_found("refused", name, 0, "is not source: a program is built from its sources only"))
    if sum(map(len, texts.values())) > _LONG_ALL:
        what = f"holds more sources than the {_LONG_ALL >> 20} MiB that a program may have"
        return (_found("refused", root.name, 0, what), *found)
    siblings = frozenset(filter(_is_new, (name.split("/")[0].removesuffix(".py") for name in texts if name.endswith(".py"))))
    for name, text in texts.items():
        if name.endswith(".py"):
            found += _first(_python(text, name, siblings), name)
        else:
            native = screen_native.screen(text, depth=name.count("/"))
            found += _first([_found(kind, name, line, why) for kind, line, why in native], name)
    return tuple(sorted(dict.fromkeys(found), key=lambda finding: finding.severity != "refused"))


def _first(found: list[ScreenFinding], name: str) -> list[ScreenFinding]:
    """The first `_MOST_FOUND` refusals and as many notes in one file, each with the number of those left out."""
    shown: list[ScreenFinding] = []
    severities: tuple[Severity, ...] = ("refused", "noted")
    for severity in severities:
        findings = list(dict.fromkeys(finding for finding in found if finding.severity == severity))
        shown += findings[:_MOST_FOUND]
        if len(findings) > _MOST_FOUND:
            shown.append(_found(severity, name, 0, f"has {counted(len(findings) - _MOST_FOUND, 'more line')} of the kind"))
    return shown


def _python(text: str, name: str, siblings: frozenset[str]) -> list[ScreenFinding]:
    try:
        tree = parse_module(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", 0) or 0
        return [_found("noted", name, line, f"is not valid Python: {getattr(error, 'msg', error)}")]
    try:
        return list(_Reader(tree, name, siblings).findings())
    except RecursionError:
        return [_found("refused", name, 0, "is nested too deeply to be read; write its long expressions in pieces")]


class _Reader:
    """Reads one Python file: follows names to the imports that bind them, and folds strings made of constants.

    `siblings`: the modules next to the file, which are the program's own.
    """

    def __init__(self, tree: ast.Module, name: str, siblings: frozenset[str] = frozenset()) -> None:
        self._tree = tree
        self._name = name
        self._siblings = siblings
        self._imported: dict[str, str] = {}        # the dotted origin of each local name that an import bound
        self._aliases: set[str] = set()            # names in `_imported` that an assignment bound instead
        self._scopes = find_scopes(tree)
        self._methods = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        self._origins: dict[int, str] = {}         # the origin of each expression, filled when all names are bound
        self._folded: set[int] = set()             # expressions inside of strings that were read as a whole
        self._unfolded: set[int] = set()           # additions that are not strings made of constants
        self._inert = find_inert_strings(tree)
        self._harmless = find_harmless_modules(tree)
        self._threads_load = _threads_only_load(tree)
        self._bind()

    def findings(self) -> Iterator[ScreenFinding]:
        for node in ast.walk(self._tree):
            line = getattr(node, "lineno", 0)
            for severity, what in self._judge(node):
                yield _found(severity, self._name, line, what)

    def _judge(self, node: ast.AST) -> Iterator[tuple[Severity, str]]:
        if isinstance(node, ast.Attribute):
            if not self._own_method(node):
                yield from self._judge_word(node.attr)
            origin = self._origin(node)
            if origin in ("sys.modules", "builtins.__import__") and id(node) not in self._harmless:
                yield "refused", "looks through the modules of the process it runs in"
            elif origin == "unittest.mock":
                yield "refused", "uses unittest.mock, which replaces functions that are not its own"
            elif origin in _REMOVALS or (node.attr in _REMOVING and node.attr not in self._methods):
                yield "refused", f"removes files ({origin or node.attr}): they would be the user's, wherever it runs next"
        elif isinstance(node, ast.Subscript):
            if isinstance(node.ctx, ast.Store | ast.Del) and self._origin(node.value) in _OF_BUILTINS:
                yield "refused", "replaces a function of Python's own"
        elif isinstance(node, ast.Name):
            yield from self._judge_word(self._origin(node).rsplit(".", 1)[-1])
            if (origin := self._origin(node)) in _REMOVALS:
                yield "refused", f"removes files ({origin}): they would be the user's, wherever it runs next"
            if node.id in _BUILTINS and node.id not in self._imported and id(node) not in self._scopes.own:
                yield "refused", f"uses {node.id}: code that cannot be read in its source"
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from self._judge_import(node)
        elif isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Delete):
            for target in node.targets if isinstance(node, ast.Assign | ast.Delete) else [node.target]:
                yield from self._judge_target(target)
        elif isinstance(node, ast.Call):
            yield from self._judge_call(node)
        elif isinstance(node, ast.Constant | ast.BinOp | ast.JoinedStr):
            yield from self._judge_string(node)

    def _judge_word(self, word: str) -> Iterator[tuple[Severity, str]]:
        if word in ("from_address", "ctypeslib"):
            yield "refused", "reaches into memory by address"
        elif word in _INTERNALS:
            yield "refused", f"reaches into the interpreter ({word}); a program has no need to know who calls it"
        elif word == "memfd_create":
            yield "refused", "makes a file that has no name (memfd_create)"
        elif word in _UNSEEN:
            yield "refused", f"hides torch operators from those who count them ({word})"

    def _judge_import(self, node: ast.Import | ast.ImportFrom) -> Iterator[tuple[Severity, str]]:
        origins = [alias.name for alias in node.names]
        if isinstance(node, ast.ImportFrom):
            origins = [f"{node.module or ''}.{alias.name}" for alias in node.names]
        for origin in origins:
            top = origin.split(".")[0]
            for part in origin.split("."):
                yield from self._judge_word(part)
            if top == "stitchcuda":
                yield "refused", "imports the verifier"
            elif top == "mock" or origin.startswith("unittest.mock"):
                yield "refused", f"imports {origin}, which replaces functions that are not its own"
            elif top in _SPAWNS:
                yield "noted", f"imports {top}; a program can neither start processes nor reach a network"
            elif origin == "concurrent.futures.ThreadPoolExecutor" and self._threads_load:
                continue
            elif top in ("ctypes", "cffi", "threading", "_thread", "concurrent", "atexit", "signal", "weakref"):
                yield "noted", f"imports {top}"

    def _judge_target(self, target: ast.expr) -> Iterator[tuple[Severity, str]]:
        if isinstance(target, ast.Tuple | ast.List):
            for part in target.elts:
                yield from self._judge_target(part)
        elif isinstance(target, ast.Attribute):
            origin = self._origin(target)
            if origin and not origin.startswith(_SETTINGS) and not self._of_sibling(origin):
                yield "refused", f"replaces {origin}, which is not its own"
            if origin and origin.startswith("torch.backends."):
                yield "noted", f"sets {origin}"
        elif isinstance(target, ast.Subscript):
            held = target.value
            if isinstance(held, ast.Call) and self._callee(held) == "vars" and held.args and self._origin(held.args[0]):
                yield "refused", f"replaces what {self._origin(held.args[0])} holds, which is not its own"
            elif isinstance(held, ast.Attribute) and held.attr == "__dict__" and self._origin(held.value):
                yield "refused", f"replaces what {self._origin(held.value)} holds, which is not its own"
            elif self._origin(held) == "sys.modules":
                yield "refused", "replaces a module of the process it runs in"

    def _judge_call(self, node: ast.Call) -> Iterator[tuple[Severity, str]]:
        callee = self._callee(node)
        if callee not in _BUILTINS and (callee in _READS or callee.removeprefix("builtins.") in _READS):
            yield "refused", f"calls {callee}: code that cannot be read in its source"
        if callee in _IMPORTS and (
            not node.args or fold(node.args[0]) is None
        ):
            yield "refused", "imports a module whose name cannot be read in its source"
        if callee.startswith(_DECODES) and not _ENCODES.search(callee):
            yield "refused", f"calls {callee}: what it decodes cannot be read in its source"
        if callee.startswith("ctypes."):
            opens = callee.rsplit(".", 1)[-1] in ("CDLL", "PyDLL", "LoadLibrary")
            if opens and (not node.args or fold(node.args[0]) is None):
                yield "refused", "loads a library that was not built from its sources"
            elif callee.rsplit(".", 1)[-1] in _BY_ADDRESS:
                yield "refused", f"reaches into memory by address ({callee})"
        if callee in ("setattr", "delattr", "builtins.setattr") and node.args:
            origin = self._origin(node.args[0])
            if origin and not f"{origin}.".startswith(_SETTINGS) and origin.lstrip(".") not in self._siblings:
                yield "refused", f"replaces an attribute of {origin}, which is not its own"
        if callee.rpartition(".")[0] in _OF_BUILTINS and callee.rpartition(".")[2] in _STORES:
            yield "refused", "replaces a function of Python's own"
        if callee in ("getattr", "builtins.getattr") and len(node.args) > 1:
            text = fold(node.args[1])
            if text is not None:
                yield from self._judge_word(text)
        if callee.startswith("torch.library.") and any(_names_aten(argument) for argument in node.args):
            yield "refused", "overrides torch's own operators"
        if callee in ("os.fork", "os.system", "os.popen", "os.kill", "os.killpg") or callee.startswith(("os.exec", "os.spawn")):
            yield "noted", f"calls {callee}; a program can neither start nor signal processes"

    def _judge_string(self, node: ast.AST) -> Iterator[tuple[Severity, str]]:
        if id(node) in self._folded and not isinstance(node, ast.Constant):
            return
        text = fold(node, self._unfolded)
        if text is None:
            return
        if text in _INTERNALS or text in _UNSEEN:
            yield from self._judge_word(text)
        if id(node) in self._inert:
            return
        path = next((hit["path"] for hit in _PRIVATE_PATH.finditer(text) if hit["path"] not in _HARMLESS_PROC), None)
        if path is not None:
            yield "refused", f"names {path[:60]!r}: memory and files of other processes are no business of a program"
        if id(node) in self._folded:
            return
        self._folded.update(id(part) for part in ast.walk(node) if part is not node)
        if _VERIFIERS.search(text) or text.partition(".")[0] == "stitchcuda":
            yield "refused", "names what belongs to the verifier"
        if "__global__" in text or "#include" in text:
            for kind, line, why in screen_native.screen(text):
                yield kind, f"(line {line} of that text) {why}"
        elif _BLOB.search(text):
            yield "refused", "holds a long encoded text: a program is built from sources that can be read"

    def _bind(self) -> None:
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    top = alias.name.split(".")[0]
                    self._imported[alias.asname or top] = alias.name if alias.asname else top
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    self._imported[alias.asname or alias.name] = f"{node.module or ''}.{alias.name}"
        for _ in range(3):                 # aliases of aliases
            for node in ast.walk(self._tree):
                if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                    origin = self._origin(node.value)
                    if origin and node.targets[0].id not in self._imported:
                        self._imported[node.targets[0].id] = origin
                        self._aliases.add(node.targets[0].id)
        for node in reversed(list(ast.walk(self._tree))):  # the parts of an expression before the whole
            if isinstance(node, ast.Attribute | ast.Call | ast.Subscript):
                self._origins[id(node)] = self._origin(node)

    def _origin(self, node: ast.AST) -> str:
        """The dotted name of an expression that starts at an import, such as "torch.cuda.synchronize"; "" for any other."""
        if (known := self._origins.get(id(node))) is not None:
            return known
        if isinstance(node, ast.Name):
            hidden = node.id in self._aliases and id(node) in self._scopes.parameters
            return "" if hidden else self._imported.get(node.id, "builtins" if node.id == "__builtins__" else "")
        if isinstance(node, ast.Attribute):
            base = self._origin(node.value)
            if len(base) > _LONGEST_ORIGIN:
                raise RecursionError
            return f"{base}.{node.attr}" if base else ""
        if isinstance(node, ast.Call):
            callee = self._callee(node)
            named = fold(node.args[0]) if node.args else None
            if callee in _IMPORTS and named:
                return named.replace(":", ".")
            if callee in ("getattr", "builtins.getattr") and len(node.args) > 1:
                base, text = self._origin(node.args[0]), fold(node.args[1])
                return f"{base}.{text or '?'}" if base else ""
        if isinstance(node, ast.Subscript) and self._origin(node.value) == "sys.modules":
            return fold(node.slice) or ""
        if isinstance(node, ast.Subscript) and fold(node.slice) == "__builtins__":
            return "builtins"              # of globals()
        return ""

    def _callee(self, node: ast.Call) -> str:
        if isinstance(node.func, ast.Name):
            return self._imported.get(node.func.id, node.func.id)
        return self._origin(node.func)

    def _own_method(self, node: ast.Attribute) -> bool:
        """Whether it is a method that the file itself defines, as `self.walk_stack()` may be. Never true for a name that Python
        itself uses, such as `__code__` or `f_back`."""
        held = node.value
        pythons = node.attr.startswith("__") or "_" in node.attr[:3]
        return not pythons and isinstance(held, ast.Name) and held.id in ("self", "cls") and node.attr in self._methods

    def _of_sibling(self, origin: str) -> bool:
        """Whether it is a name in a module next to this one, which is the program's own."""
        return origin.lstrip(".").rpartition(".")[0] in self._siblings


def _is_new(module: str) -> bool:
    """Whether Python has no module of this name, so that importing it gives the one next to the program."""
    try:
        return module.isidentifier() and importlib.util.find_spec(module) is None
    except (ImportError, ValueError):
        return False


def _threads_only_load(tree: ast.Module) -> bool:
    """Whether ThreadPoolExecutor is used only in the function in which printed programs build their kernels, unchanged."""
    named = {id(node) for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == "ThreadPoolExecutor"}
    printed = [node for node in tree.body if isinstance(node, ast.FunctionDef) and ast.dump(node) == _printed_loader()]
    return bool(printed) and named <= {id(node) for function in printed for node in ast.walk(function)}


@functools.cache
def _printed_loader() -> str:
    return ast.dump(parse_module(loader_text()).body[0])


def _names_aten(node: ast.AST) -> bool:
    text = fold(node)
    return text is not None and (text == "aten" or text.startswith("aten::"))


def _found(severity: Severity, name: str, line: int, what: str) -> ScreenFinding:
    where, what = (text.encode("utf-8", "replace").decode() for text in (f"{name} line {line}" if line else name, what))
    return ScreenFinding(severity=severity, where=where, what=what)
