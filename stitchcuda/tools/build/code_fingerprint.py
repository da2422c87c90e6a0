"""Computes a fingerprint of a program's sources without comments, so that equal programs are checked and timed once.

C++ and CUDA are hashed without comments and with one blank for each run of white space, Python as its syntax tree, other files
byte by byte. Programs that do the same may have different fingerprints. Programs with the same one do the same, unless they
read their own comments or line numbers.
Where to look next: `tools/build/nvcc.py` (which computes it), `nodes/nvcc_build.py` (which skips equal programs).
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
from pathlib import Path

from stitchcuda.compiler.syntax import parse_module
from stitchcuda.tools.build.program_sources import CXX

_DIGITS = 32
_SKIPPED = {"__pycache__", ".git", ".venv", ".stitchcuda"}
_SUFFIXES = (".cu", ".cuh", ".h", ".hh", ".hpp", ".hxx", ".inl", ".inc", *CXX)
_MANIFEST = "program.json"
_DESCRIBES = ("kernels", "name")           # entries of the manifest that nothing depends on
_COMMENT = r"//[^\n]*|/\*.*?\*/"
_TOKEN = re.compile(
    rf"(?P<blank>(?:\s|{_COMMENT})+)" r'|"(?:[^"\\\n]|\\.)*"' r"|(?<!\w)'(?:[^'\\\n]|\\.)+'", re.DOTALL
)
# Continued lines, raw strings, trigraphs, prefixed characters, and includes with // in the name: with one of them _TOKEN may be
# wrong about where a comment or a literal ends, so the text is hashed as it is.
_UNUSUAL = re.compile(r"""\\\s*\n|R"|\?\?|[uUL8]'|include[^\n>]*<[^\n>]*/[/*]""")


def fingerprint(program: Path) -> str:
    """Returns 32 hexadecimal digits for all files of a program's folder; "" if one of them is a link or cannot be read."""
    try:
        paths = [path for path in sorted(program.rglob("*")) if path.suffix != ".pyc"]
        paths = [path for path in paths if not _SKIPPED & set(path.relative_to(program).parts)]
        if any(path.is_symlink() for path in paths):
            return ""
        files = {str(path.relative_to(program)): path.read_bytes() for path in paths if path.is_file()}
    except OSError:
        return ""
    read = any(_MANIFEST.encode() in data for name, data in files.items() if name.endswith(".py"))
    digest = hashlib.sha256()
    for name, data in files.items():
        text = data.decode("utf-8", "surrogateescape")
        if name.endswith(_SUFFIXES):
            data = _bare(text).encode("utf-8", "surrogateescape")
        elif name.endswith(".py"):
            data = _tree(text).encode("utf-8", "surrogateescape")
        elif name == _MANIFEST and not read:
            data = _manifest(data)
        for part in (name.encode("utf-8", "surrogateescape"), data):
            digest.update(b"%d:" % len(part) + part)
    return digest.hexdigest()[:_DIGITS]


def _bare(text: str) -> str:
    """Returns C++ with a newline or one blank in place of each run of comments and white space."""

    def shorter(token: re.Match[str]) -> str:
        if token["blank"] is None:
            return token.group()           # a string or a character
        return "\n" if "\n" in re.sub(_COMMENT, "", token["blank"], flags=re.DOTALL) else " "

    return text if _UNUSUAL.search(text) else _TOKEN.sub(shorter, text).strip()


def _tree(text: str) -> str:
    """Returns the dump of Python's syntax tree; the text itself if it cannot be parsed or nests too deeply."""
    try:
        return ast.dump(parse_module(text))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return text


def _manifest(data: bytes) -> bytes:
    """Returns program.json without the entries of `_DESCRIBES`."""
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        return data
    if isinstance(content, dict):
        content = {name: value for name, value in content.items() if name not in _DESCRIBES}
    return json.dumps(content, sort_keys=True).encode()
