"""The package as users get it: what wheel and sdist hold, and that the wheel works outside the repository."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from stitchcuda import __version__
from stitchcuda.rag.index import Docs
from tests.rag.conftest import real

__all__ = ["real"]                         # a fixture

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the sdist, built from a copy of the tracked files."""
    folder = tmp_path_factory.mktemp("package")
    source, out = folder / "source", folder / "dist"
    subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(source)], check=True)
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


def test_wheel_holds_one_namespace_and_every_data_file(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == {"stitchcuda", wheel.name.rsplit("-", 3)[0] + ".dist-info"}
    assert wheel.name.split("-")[1] == __version__
    tracked = subprocess.run(["git", "ls-files", "stitchcuda"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert sorted(set(tracked.stdout.split()) - set(names)) == []


def test_sdist_holds_no_second_copy_behind_the_root_doors(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        tops = {name.split("/")[1] for name in archive.getnames() if "/" in name}
    assert not tops & {"graph", "nodes", "tools", "rag", "state.py"}


def test_wheel_runs_outside_the_repository(built: Path, tmp_path: Path) -> None:
    (wheel,) = built.glob("*.whl")
    site = tmp_path / "site"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(site), str(wheel)]
    subprocess.run(command, check=True)
    environment = os.environ | {"PYTHONPATH": str(site)}
    code = "import stitchcuda, sys; print(stitchcuda.__file__); assert 'torch' not in sys.modules"
    where = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert where.returncode == 0, where.stderr
    assert where.stdout.strip() == str(site / "stitchcuda" / "__init__.py")
    command = [sys.executable, "-m", "stitchcuda", "optimize", "--help"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "REF" in done.stdout


@pytest.mark.more
def test_wheel_holds_nothing_of_nvidias_text(built: Path, real: Docs) -> None:
    """No ten words in a row of what the headers' comments say, in any text file of the wheel."""
    theirs = runs_of(real)
    assert len(theirs) > 100_000
    (wheel,) = built.glob("*.whl")
    archive = zipfile.ZipFile(wheel)
    texts = [name for name in archive.namelist() if not name.startswith("stitchcuda-")]
    assert any(name.startswith("stitchcuda/rag/playbook/") for name in texts)
    assert any(name.startswith("stitchcuda/rag/phrases/") for name in texts)
    same = {name: sorted(runs(archive.read(name).decode("utf-8", "replace")) & theirs) for name in texts}
    assert {name: found[:3] for name, found in same.items() if found} == {}


def test_the_repository_holds_nothing_of_nvidias_text(real: Docs) -> None:
    theirs = runs_of(real)
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    texts = [ROOT / name for name in tracked if name and not name.endswith((".gz", ".png")) and (ROOT / name).is_file()]
    same = {str(path.relative_to(ROOT)): sorted(runs(path.read_text("utf-8", "replace")) & theirs)[:3] for path in texts}
    assert {name: found for name, found in same.items() if found} == {}


def runs_of(docs: Docs) -> set[str]:
    chunks = (docs.names.chunk(at) for at in range(docs.manifest.chunks))
    return {run for chunk in chunks if chunk.library != "playbook" for run in runs(chunk.comment)}


def runs(text: str) -> set[str]:
    words = [word for word in (re.sub(r"\W+", "", one) for one in text.lower().split()) if word]
    return {" ".join(words[at : at + 10]) for at in range(len(words) - 9)}


def test_the_room_verify_can_be_called_as_the_public_function(tmp_path: Path) -> None:
    """Importing anything below `stitchcuda.verify` puts the package where the function of the public API was."""
    code = (
        "import stitchcuda, stitchcuda.verify.client; from pathlib import Path\n"
        "from stitchcuda.errors import BadInput\n"
        "try: stitchcuda.verify(Path('nothing.py'), Path('reference.py'))\n"
        "except BadInput as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert "nothing.py" in done.stdout
