"""The corpora: programs that cheat (`attacks/`), honest ones that look as if they did (`honest/`), and `limited/`.

Each program states in its first lines which row of the catalogue it instances, its reference, where its trick can be
expressed and what it does. This module only reads that; README.md says how to add one, `tests/integrity/scaffold.py` completes
it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tests.integrity.scaffold import complete

HERE = Path(__file__).resolve().parent
_FIELD = re.compile(r"^#\s*(row|reference|runs|what|written):\s*(.*?)\s*$", re.MULTILINE)


@dataclass(frozen=True)
class Entry:
    """One program of a corpus."""

    path: Path                             # a file (complete, or laid over a base), or a folder with model_new.py
    row: str                               # "A6", "B1", "S2" (attacks on the machine), "honest"
    reference: Path
    runs: str                              # cpu, gpu or both
    what: str                              # one sentence
    independent: bool                      # written by somebody who had not seen the verifier, before it was tuned

    @property
    def name(self) -> str:
        return self.path.stem

    def program(self, folder: Path) -> Path:
        """The complete program, for a verifier: in a folder of its own in `folder`, unless it is a folder itself."""
        if self.path.is_dir():
            return self.path
        place = folder / self.name
        place.mkdir(parents=True, exist_ok=True)
        (place / self.path.name).write_text(complete(self.path))
        return place / self.path.name

    def on(self, target: str) -> bool:
        """Whether its trick shows on the simulator ("sim") or on a GPU ("cuda")."""
        return self.runs == "both" or self.runs == {"sim": "cpu", "cuda": "gpu"}[target]


def entries(kind: str) -> list[Entry]:
    """All programs of "attacks" or "honest", in order of name. Raises ValueError for a header that lacks something."""
    folder = HERE / kind
    paths = [path for path in sorted(folder.iterdir()) if path.suffix == ".py" or (path / "model_new.py").is_file()]
    return [_read(path) for path in paths]


def _read(path: Path) -> Entry:
    text = (path / "model_new.py" if path.is_dir() else path).read_text()
    fields = dict(_FIELD.findall(text[:2000]))
    missing = [name for name in ("row", "reference", "runs", "what") if name not in fields]
    if missing:
        raise ValueError(f"{path} says nothing about {', '.join(missing)} in its first lines")
    reference = HERE / "references" / fields["reference"].split()[0]
    if not reference.is_file():
        raise ValueError(f"{path} names a reference that is not there: {reference.name}")
    return Entry(
        path=path,
        row=fields["row"],
        reference=reference,
        runs=fields["runs"].split()[0],
        what=fields["what"],
        independent=fields.get("written") == "independently",
    )
