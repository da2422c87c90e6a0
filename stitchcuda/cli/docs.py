"""`stitchcuda docs`: builds and searches the documentation index, adds and removes documents, lists sources.

What is indexed and how it is found is decided in the room `rag/`. `--json` prints one JSON object on stdout.

Where to look next: `rag/building.py`, `rag/additions.py`, `rag/lookup.py` (what the commands call), `cli/console.py` (options).
"""

from __future__ import annotations

import json
import os
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stitchcuda.cli.console import FORM, AsJson, Debug, print_table, report_errors
from stitchcuda.counts import counted
from stitchcuda.errors import BadInput

if TYPE_CHECKING:
    from rich.table import Table

    from stitchcuda.rag.building import BuildProgress, Built
    from stitchcuda.rag.index import Hit

app = typer.Typer(**FORM, help="Finds what CUDA's, cuBLASLt's and cuDNN's headers, your own documents and our playbook say.")

_SHOWN = 1100                              # most characters of an entry that are printed
_WIDTH = 100                               # columns to which an entry is wrapped
_MODES = ("hybrid", "words", "meaning")
_INTERRUPTED = "interrupted: what is done is kept, the index before is in use"


@app.command()
@report_errors(interrupted=_INTERRUPTED)
def build(
    words: Annotated[bool, typer.Option("--words", help="Names and words only: no vectors, so no search by meaning.")] = False,
    model: Annotated[
        str | None, typer.Option("--model", help="A sentence-transformers model or folder. Default: the carried one.")
    ] = None,
    as_json: AsJson = False, debug: Debug = False,
) -> None:  # fmt: skip
    """Brings the index up to date; what did not change is not read again."""
    from stitchcuda.rag import building

    if words and model:
        raise BadInput("--words makes no vectors, so --model has no use: give one of them")
    with _show_progress() as tell:
        built = building.build(model=None if words else _model(model), tell=tell)
    assert built is not None
    _print_built(built, words, as_json)


@app.command()
@report_errors(interrupted=_INTERRUPTED)
def add(
    source: Annotated[str, typer.Argument(metavar="PATH_OR_URL", help="A file, a folder, or a page of the web.")],
    loader: Annotated[
        str,
        typer.Option("--loader", metavar="NAME", help="A class of langchain_community.document_loaders instead of by suffix."),
    ] = "",
    library: Annotated[str, typer.Option("--library", help="Whose documentation it is, such as cuDNN.")] = "notes",
    version: Annotated[str, typer.Option("--version", help="Of that library.")] = "",
    as_json: AsJson = False, debug: Debug = False,
) -> None:  # fmt: skip
    """Reads HTML, PDF, Markdown or text into the index; what was added from there before is replaced."""
    from stitchcuda.rag import additions, loaders

    there = os.path.abspath(os.path.expanduser(source))
    named = there if not loaders.is_url(source) and (os.path.lexists(there) or not loader) else source
    documents, notes = loaders.load(named, loader)
    with _show_progress() as tell:
        built = additions.add_documents(documents, source=named, library=library, version=version, notes=notes, tell=tell)
    _print_built(built, False, as_json)


@app.command()
@report_errors(interrupted=_INTERRUPTED)
def remove(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="As it was added: see docs sources.")],
    as_json: AsJson = False, debug: Debug = False,
) -> None:  # fmt: skip
    """Takes out of the index what was added."""
    from stitchcuda.rag import additions

    with _show_progress() as tell:
        built = additions.remove(source, tell)
    _print_built(built, False, as_json)


@app.command()
@report_errors()
def search(
    query: Annotated[list[str], typer.Argument(metavar="QUERY", help="A name such as cublasLtMatmul, or words.")],
    k: Annotated[int, typer.Option("-k", help="Most results.")] = 5,
    library: Annotated[list[str] | None, typer.Option("--library", help="Libraries that begin so, such as cublas.")] = None,
    version: Annotated[str, typer.Option("--version", help="Only of versions that begin so, such as 13.")] = "",
    mode: Annotated[str, typer.Option("--mode", help="hybrid, words or meaning.")] = "hybrid",
    as_json: AsJson = False, debug: Debug = False,
) -> int:  # fmt: skip
    """Shows the entries that answer best, with where they stand."""
    if mode not in _MODES:
        raise BadInput(f"--mode {mode!r} is none: take {', '.join(_MODES)}")
    from stitchcuda.rag import lookup

    question = " ".join(query)
    docs, notes = lookup.open_or_make(_note)
    for note in notes:
        _note(note)
    with closing(docs):
        found = docs.search(question, k, libraries=library or (), version=version, mode=mode)  # type: ignore[arg-type]
        notes = [*(f"{note}, then run: stitchcuda docs build" for note in docs.lacking(question)), *found.notes]
    for note in notes:
        _note(note)
    if as_json:
        print(json.dumps({"results": [_result(hit) for hit in found.hits], "notes": notes}))
    elif found.hits:
        print("\n\n".join(_entry(number, hit) for number, hit in enumerate(found.hits, 1)))
    else:
        print(f"nothing fits {question[:80]!r}: try other words, or `stitchcuda docs sources` for what is indexed")
    return 0 if found.hits else 1


@app.command()
@report_errors()
def sources(
    as_json: AsJson = False, debug: Debug = False,
) -> None:  # fmt: skip
    """Lists what is indexed, with versions, and what is not here and how to get it."""
    from stitchcuda.rag import index_store
    from stitchcuda.rag.embedding import no_vectors
    from stitchcuda.rag.sources import discover

    here = discover()
    index = next(iter(index_store.indexes(here.place)), None)
    manifest = index_store.manifest_of(index) if index else None
    meaning = index_store.meaning_of(index) if index else None
    parts = [part.model_dump() for part in manifest.parts] if manifest else []
    if as_json:
        print(json.dumps({
            "index": str(index or ""), "created": manifest.created if manifest else "",
            "model": meaning.model if meaning else "", "sources": parts, "missing": here.missing,
        }))  # fmt: skip
        return
    if manifest is None:
        print("no index yet: `stitchcuda docs build` makes one of", ", ".join(source.name for source in here.found))
    else:
        print_table(_table(parts))
        by = f"vectors by {meaning.model}" if meaning else f"no vectors: {no_vectors()}"
        print(f"{counted(manifest.chunks, 'entry')}, made {manifest.created[:16].replace('T', ' ')}; {by}")
    for name, why in here.missing.items():
        print(f"not here: {name}: {why}")
    print("your own: stitchcuda docs add PATH_OR_URL, and stitchcuda docs remove SOURCE")


def _note(sentence: str) -> None:
    print(f"note: {sentence}", file=sys.stderr)


def _model(named: str | None) -> str:
    """The model to make vectors with: the one named (a folder as an absolute path), else the index's, else the one we carry."""
    from stitchcuda.rag import building, embedding

    if named:
        return str(Path(named).resolve()) if Path(named).is_dir() else named
    return building.known_model() or embedding.CARRIED


@contextmanager
def _show_progress() -> Iterator[Callable[[BuildProgress], None]]:
    """Gives a function that shows the progress of a build on stderr: as a bar in a terminal, as lines elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    console = Console(stderr=True, highlight=False)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bars(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        bar: TaskID | None = None

        def tell(progress: BuildProgress) -> None:
            nonlocal bar
            if progress.step == "meaning":
                bar = bars.add_task(progress.text, total=progress.total) if bar is None else bar
                bars.update(bar, completed=progress.done)
            elif progress.text:
                console.print(progress.text, style="dim" if console.is_terminal else None, soft_wrap=True)

        yield tell


def _print_built(built: Built, words: bool, as_json: bool) -> None:
    if as_json:
        print(json.dumps(_facts(built)))
        return
    parts = ", ".join(f"{library} {count:,}" for library, count in built.manifest.libraries.items())
    what = f"indexed in {built.words_s:.1f} s" if built.changed else f"nothing has changed (looked in {built.words_s:.1f} s)"
    print(f"{counted(built.manifest.chunks, 'entry')} {what}: {parts}")
    for part in built.manifest.parts:
        for note in part.notes[:5]:
            print(f"not read: {note}")
        if len(part.notes) > 5:
            print(f"not read: {len(part.notes) - 5} more of {part.name}")
    if built.manifest.notes:
        print(f"not here: {len(built.manifest.notes)} libraries (`stitchcuda docs sources` names them)")
    if built.without_meaning:
        print(f"no vectors: {built.without_meaning}")
    elif built.meaning and not words:
        made = f", {built.meaning.embedded:,} of them new, in {built.meaning_s:.0f} s" if built.meaning_s > 1 else ""
        print(f"search by meaning: vectors by {built.meaning.model}{made}")
    print("next:    stitchcuda docs search WORDS")


def _facts(built: Built) -> dict[str, Any]:
    return {
        "index": str(built.at), "changed": built.changed, "chunks": built.manifest.chunks,
        "libraries": built.manifest.libraries,
        "model": built.meaning.model if built.meaning else "", "without_meaning": built.without_meaning,
        "seconds": {"words": round(built.words_s, 2), "meaning": round(built.meaning_s, 2)},
        "notes": [*built.manifest.notes, *(note for part in built.manifest.parts for note in part.notes)],
    }  # fmt: skip


def _result(hit: Hit) -> dict[str, Any]:
    chunk = hit.chunk
    return {
        "score": round(hit.score, 5), "source": chunk.source, "title": chunk.title,
        "text": chunk.whole, "library": chunk.library,
        "version": chunk.version, "kind": chunk.kind, "citation": chunk.citation, "found_by": list(hit.by),
    }  # fmt: skip


def _entry(number: int, hit: Hit) -> str:
    chunk = hit.chunk
    text = chunk.whole
    if len(text) > _SHOWN:
        text = text[:_SHOWN].rsplit("\n", 1)[0] + "\n…"
    lines = [part for line in text.splitlines() for part in (textwrap.wrap(line, _WIDTH, subsequent_indent="    ") or [""])]
    return "\n".join((f"{number}. {chunk.citation}", *(f"   {line}" for line in lines)))


def _table(parts: list[dict[str, Any]]) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="")
    for name in ("source", "version", "kind", "files", "entries", "where"):
        table.add_column(name, justify="right" if name in ("files", "entries") else "left", overflow="fold")
    for part in parts:
        table.add_row(part["name"], part["version"], part["kind"], f"{part['files']:,}", f"{part['chunks']:,}", part["where"])
    return table
