"""Turns a work folder of CUDA Agent into a program that builds itself, so that the verifier can judge it.

Such a folder has model.py, model_new.py, binding.cpp, binding_registry.h and kernels/ with .cu and .cpp files. A script beside
them builds the module cuda_extension of these, and model_new.py imports it. The program is a copy whose model_new.py builds the
module with torch's `load` in place of that import. Nothing is built or run here.
Where to look next: `bench/programs.py` (who reads the folders).
"""

from __future__ import annotations

import re
from pathlib import Path

from stitchcuda.errors import BadInput
from stitchcuda.store.files import write_atomically

_IMPORT = re.compile(r"^import cuda_extension(?: as (\w+))?[ \t]*(?:#.*)?$", re.MULTILINE)
_BUILT = """from pathlib import Path as _Path

from torch.utils.cpp_extension import load as _load

{name} = _load("cuda_extension", [str(_Path(__file__).parent / name) for name in {sources}])"""
_SOURCES = (".cu", ".cpp", ".cc")
_HEADERS = (".h", ".hpp", ".cuh", ".inl")


def is_work_folder(folder: Path) -> bool:
    return (folder / "model_new.py").is_file() and (folder / "binding.cpp").is_file()


def program_of(folder: Path, into: Path) -> Path:
    """Writes the program of a work folder to the folder `into`, unless it is there, and returns `into`. Raises `BadInput`."""
    files = [folder / "binding.cpp", *sorted(folder.glob("*.h")), *sorted((folder / "kernels").rglob("*"))]
    kept = [file for file in files if file.suffix in (*_SOURCES, *_HEADERS) and file.is_file()]
    sources = [file.relative_to(folder).as_posix() for file in kept if file.suffix in _SOURCES]
    try:
        text = (folder / "model_new.py").read_text(encoding="utf-8")
        data = {file.relative_to(folder): file.read_bytes() for file in kept}
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{folder} cannot be read as a work folder of CUDA Agent: {error}") from error
    built, count = _IMPORT.subn(lambda found: _BUILT.format(name=found[1] or "cuda_extension", sources=sources), text, count=1)
    data[Path("model_new.py")] = (built if count else text).encode()
    for name, content in data.items():
        if not (into / name).is_file():
            (into / name).parent.mkdir(parents=True, exist_ok=True)
            write_atomically(into / name, content)
    return into
