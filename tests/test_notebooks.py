"""Every notebook runs from top to bottom, in a kernel of its own and an empty folder."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"


SAYS = {
    "quickstart": ("class ModelNew", "next_task", "] plan 1: "),
    "inside_a_session": ("done simulated", "own kernels hold", "part at attempt 3", "differ: kernels/softmax_r02.cu"),
    "your_own_engineer": (
        "True simulated",
        "correct=False",
        "most registers a thread: ",
        "+      const float t5 = t3[v] * (1.0f / t4);",  # not the built-in engineer's program
    ),
}
"""What each notebook must have printed."""


@pytest.mark.parametrize("path", [
    pytest.param(path, marks=pytest.mark.more if path.stem == "quickstart" else pytest.mark.long, id=path.stem)
    for path in sorted(NOTEBOOKS.glob("*.ipynb"))
])  # fmt: skip
def test_notebook_runs(path: Path, tmp_path: Path) -> None:
    notebook = nbformat.reads(path.read_text(), as_version=4)
    client = NotebookClient(notebook, timeout=240, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
    printed = "".join(
        output.get("text", "") for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs
    )
    for words in SAYS[path.stem]:
        assert words in printed, words
    assert not list(tmp_path.iterdir()), "a notebook leaves nothing where it is opened"


def test_notebooks_are_committed_without_output() -> None:
    for path in NOTEBOOKS.glob("*.ipynb"):
        cells = [cell for cell in nbformat.reads(path.read_text(), as_version=4).cells if cell.cell_type == "code"]
        assert all(not cell.outputs and cell.execution_count is None for cell in cells), path
