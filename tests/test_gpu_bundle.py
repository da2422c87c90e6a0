"""The bundle for a GPU host without a network: what is in it, and that it installs there and nowhere it should not."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
HERE = f"{sys.version_info.major}.{sys.version_info.minor}"
OTHER = "3.20"  # a Python that no test runs on

BACKEND = '''
import os, zipfile
def build_wheel(folder, config_settings=None, metadata_directory=None):
    assert not os.path.exists("build"), "what an earlier build left"
    name = "stitchcuda-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(f"{folder}/{name}", "w") as wheel:
        wheel.write("tools/build/main.py", "stitchcuda/__main__.py")
        wheel.writestr("stitchcuda-0.1.0.dist-info/METADATA", "Metadata-Version: 2.1\\nName: stitchcuda\\nVersion: 0.1.0\\n"
                       "Requires-Dist: torch>=2.8\\nRequires-Dist: needed[more]\\n"
                       "Provides-Extra: toolkit\\nRequires-Dist: cuda_toolkit; extra == 'toolkit'\\n")
        wheel.writestr("stitchcuda-0.1.0.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr("stitchcuda-0.1.0.dist-info/RECORD", "")
    return name
'''
PROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "stitchcuda"
version = "0.1.0"
dependencies = ["torch>=2.8", "needed[more]"]
[project.optional-dependencies]
toolkit = ["cuda_toolkit"]
"""


def wheel(folder: Path, name: str, *needs: str, version: str = "1.0") -> None:
    """A wheel with nothing but its name and its needs."""
    folder.mkdir(exist_ok=True)
    info = f"{name}-{version}.dist-info"
    lines = "".join(f"Requires-Dist: {need}\n" for need in needs) + "Provides-Extra: more\n"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as file:
        file.writestr(f"{name}.py", "")
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{lines}")
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{info}/RECORD", "")


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A folder that is first on the PATH, with an apt-get that has nothing."""
    folder = tmp_path / "bin"
    folder.mkdir()
    script(folder / "apt-get", "exit 100")
    return folder


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with the form of this one, and an index of its own beside it."""
    index, folder = tmp_path / "index", tmp_path / "project"
    wheel(index, "needed", f'later; python_version >= "{OTHER}"', 'extra_one; extra == "more"', 'never; extra == "less"')
    wheel(index, "later")
    wheel(index, "extra_one")
    wheel(index, "ncu_report")
    wheel(index, "cuda_toolkit")
    folder.mkdir()
    (folder / "pyproject.toml").write_text(PROJECT)
    (folder / "backend.py").write_text(BACKEND)
    for part in ("tools/build", "build"):
        (folder / part).mkdir(parents=True)
    (folder / "tools/build/main.py").write_text("import sys; print('doctor says: fine', sys.argv[1:])")
    return folder


def script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def change(project: Path, old: str, new: str) -> None:
    for path in (project / "pyproject.toml", project / "backend.py"):
        path.write_text(path.read_text().replace(old, new))


def bundle(project: Path, tools: Path, out: Path, python: str = HERE, *more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts/gpu_bundle.py"), "--project", str(project), "--out", str(out), *more]
    environment = os.environ | {
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(project.parent / "index"),
    }
    return subprocess.run([*command, "--python", python], env=environment, capture_output=True, text=True, check=False)


def host(folder: Path, *, torch: bool = True, pip: bool = True) -> Path:
    """A Python as a GPU host has it: with pip and, in place of torch, its name and version."""
    subprocess.run([sys.executable, "-m", "venv", *([] if pip else ["--without-pip"]), str(folder)], check=True)
    if torch:
        (site,) = folder.glob("lib/python*/site-packages")
        (site / "torch-2.11.0.dist-info").mkdir()
        (site / "torch-2.11.0.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.11.0\n")
        (site / "torch.py").write_text("")
    return folder / "bin/python"


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script as a module, whose bundles are empty ones."""

    def fill(folder: Path, *_: object, **__: object) -> list[str]:
        folder.mkdir()
        for name in ("manifest.json", "install.sh", "new"):
            (folder / name).touch()
        return []

    monkeypatch.syspath_prepend(ROOT / "scripts")
    made = importlib.import_module("gpu_bundle")
    monkeypatch.setattr(made, "fill", fill)
    return made


@pytest.fixture
def carried(tmp_path: Path, tools: Path, module: Any) -> tuple[Path, Path]:
    """A bundle with one library, and the Python of a host, whose pip installs nothing and which has all that it asks for."""
    out, site = tmp_path / "gpu-bundle", tmp_path / "site"
    (out / "debs").mkdir(parents=True)
    (out / "debs/libdw1_1.0_amd64.deb").write_text("libdw")
    shutil.copy(ROOT / "scripts/gpu_bundle_install.sh", out / "install.sh")
    files = [module.entry(path, out) for path in sorted(out.rglob("*")) if path.is_file()]
    (out / "manifest.json").write_text(json.dumps({"python": HERE, "files": files}))
    for package, text in {"torch": "", "pip": "", "stitchcuda": "print('doctor says: fine')"}.items():
        (site / package).mkdir(parents=True)
        (site / package / "__init__.py").touch()
        (site / package / "__main__.py").write_text(text)
    script(site / "python", f'PYTHONPATH="{site}" exec "{sys.executable}" "$@"')
    script(tools / "dpkg", 'cp "$2" "$3/libdw.so.1"')
    script(tools / "ldconfig", "")
    script(tools / "ldd", "")
    script(tools / "id", "echo 1000")
    return out, site / "python"


def install(
    bundle: Path, python: Path, tools: Path, changes: Mapping[str, str | None] = {}
) -> subprocess.CompletedProcess[str]:
    """As on the host, with the system left as it is; `changes` to the environment, where None takes a name away."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "PYTHON", "LD_"))}
    environment |= {"PATH": f"{tools}{os.pathsep}{os.environ['PATH']}", "PYTHON": str(python), "PIP_CONFIG_FILE": os.devnull}
    changed = {**environment, "LIBRARIES": str(bundle.parent / "libraries"), **changes}
    environment = {name: value for name, value in changed.items() if value is not None}
    return subprocess.run([bundle / "install.sh"], env=environment, capture_output=True, text=True, check=False)


def test_what_is_in_it(project: Path, tools: Path, tmp_path: Path) -> None:
    out = tmp_path / "gpu-bundle"
    done = bundle(project, tools, out, OTHER)
    assert done.returncode == 0, done.stderr
    manifest = json.loads((out / "manifest.json").read_text())
    assert (manifest["stitchcuda"], manifest["python"]) == ("0.1.0", OTHER)
    files = {file["path"]: file for file in manifest["files"]}
    there = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}
    assert set(files) == there - {"manifest.json"}
    for path, file in files.items():
        assert file["sha256"] == hashlib.sha256((out / path).read_bytes()).hexdigest()
    wheels = {file["name"]: file["version"] for path, file in files.items() if path.startswith("wheels/")}
    # What only the host's Python needs is there too, what nobody asked for and torch are not.
    assert wheels == {"stitchcuda": "0.1.0", "needed": "1.0", "later": "1.0", "extra-one": "1.0", "ncu-report": "1.0"}
    assert len((out / "README.txt").read_text().splitlines()) <= 10
    assert os.access(out / "install.sh", os.X_OK)
    assert "left out: torch" in done.stdout
    assert "apt-get download" in done.stdout
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


@pytest.mark.more
def test_it_installs_without_a_network_and_again(project: Path, tools: Path, tmp_path: Path) -> None:
    out = tmp_path / "gpu-bundle"
    assert bundle(project, tools, out).returncode == 0
    python = host(tmp_path / "host")
    done = install(out, python, tools)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "doctor says: fine ['doctor']"
    # The same version with other code and needs, as between two bundles of a day; and doctor's exit code is install.sh's.
    change(project, "needed[more]", "later")
    (project / "tools/build/main.py").write_text("import sys; print('doctor says: a tool is missing'); sys.exit(2)")
    assert bundle(project, tools, out, HERE, "--toolkit").returncode == 0, "a bundle takes the place of an older one"
    wheel(out / "wheels", "later", version="9.0")
    done = install(out, python, tools)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (2, "doctor says: a tool is missing")
    (site,) = tmp_path.glob("host/lib/python*/site-packages")
    assert (site / "cuda_toolkit.py").exists(), "a toolkit that was asked for is installed"
    assert [path.name for path in site.glob("later-*")] == ["later-1.0.dist-info"], "strays are not installed"
    # A newer bundle copied over that one.
    change(project, "0.1.0", "0.2.0")
    (project / "tools/build/main.py").write_text("print('doctor says: newer')")
    assert bundle(project, tools, tmp_path / "newer").returncode == 0
    shutil.copytree(tmp_path / "newer", out, dirs_exist_ok=True)
    done = install(out, python, tools)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "doctor says: newer"), done.stderr
    assert [path.name for path in site.glob("stitchcuda-*")] == ["stitchcuda-0.2.0.dist-info"]


@pytest.mark.more
def test_install_refuses(project: Path, tools: Path, tmp_path: Path) -> None:
    out = tmp_path / "gpu-bundle"
    assert bundle(project, tools, out).returncode == 0
    done = install(out, host(tmp_path / "bare", torch=False, pip=False), tools)
    assert done.returncode == 2
    assert "has no torch and the bundle brings none" in done.stderr
    done = install(out, tmp_path / "nowhere/python", tools)
    assert done.returncode == 2
    assert "say which Python with PYTHON=" in done.stderr
    python = host(tmp_path / "host", pip=False)
    done = install(out, python, tools)
    assert "has no pip" in done.stderr
    (out / "wheels/needed-1.0-py3-none-any.whl").write_bytes(b"cut off on the way")
    done = install(out, python, tools)
    assert done.returncode == 2
    assert "wheels/needed-1.0-py3-none-any.whl is missing or is not what was bundled" in done.stderr
    other = tmp_path / "other"
    assert bundle(project, tools, other, OTHER).returncode == 0
    done = install(other, python, tools)
    assert f"this bundle is for Python {OTHER}" in done.stderr
    assert list(tmp_path.glob("host/lib/python*/site-packages/stitchcuda*")) == [], "nothing was installed"


def test_it_says_what_cannot_be_had(project: Path, tools: Path, tmp_path: Path) -> None:
    out = tmp_path / "gpu-bundle"
    (tmp_path / "index/later-1.0-py3-none-any.whl").unlink()
    done = bundle(project, tools, out, OTHER)
    assert done.returncode == 2
    assert done.stderr.startswith(f"gpu-bundle: no wheels for Python {OTHER} that go together, or pip does not reach its ")
    assert "later" in done.stderr
    assert not out.exists()
    out.mkdir()
    (out / "thesis.txt").write_text("mine")
    done = bundle(project, tools, out)
    assert "is no bundle" in done.stderr
    assert (out / "thesis.txt").read_text() == "mine"
    assert "is not a version such as 3.12" in bundle(project, tools, out, "python3.12").stderr


@pytest.mark.parametrize("manifest", [None, "", '{"python": ', "[]", "{}"])
def test_install_refuses_a_broken_manifest(manifest: str | None, carried: tuple[Path, Path], tools: Path) -> None:
    (carried[0] / "manifest.json").unlink()
    if manifest is not None:
        (carried[0] / "manifest.json").write_text(manifest)
    done = install(*carried, tools)
    told = "install.sh: manifest.json is missing or is not what was bundled: carry the folder over again\n"
    assert (done.returncode, done.stderr) == (2, told)


def test_install_refuses_without_a_temporary_folder(carried: tuple[Path, Path], tools: Path) -> None:
    done = install(*carried, tools, {"TMPDIR": "/nowhere"})
    told = "install.sh: no temporary folder can be made in /nowhere: set TMPDIR to a folder that can be written to\n"
    assert (done.returncode, done.stderr) == (2, told)


@pytest.mark.parametrize(
    ("changes", "broken", "told"),
    [
        ({"HOME": None, "LIBRARIES": None}, None, "HOME is not set, so libraries for nsys were put nowhere: run this again"),
        ({"LIBRARIES": os.devnull}, None, f"libraries for nsys cannot be put into {os.devnull} (mkdir: "),
        ({"HOME": os.devnull, "LIBRARIES": None}, None, f"be put into {os.devnull}/.local/share/stitchcuda/lib (mkdir: "),
        ({}, "ldd", "ldd does not say what these link to, so that was not looked for: libdw.so.1; see that ldd runs, and run"),
        ({}, "dpkg", "dpkg cannot unpack libdw1_1.0_amd64.deb: make the bundle on a machine of this host's release, or"),
    ],
)
def test_doctor_has_its_say_where_libraries_cannot_be_had(
    changes: dict[str, str | None], broken: str | None, told: str, carried: tuple[Path, Path], tools: Path
) -> None:
    if broken:
        script(tools / broken, "exit 127")
    done = install(*carried, tools, changes)
    assert done.returncode == 2
    assert done.stdout.splitlines()[-1] == "doctor says: fine"
    (line,) = done.stderr.splitlines()
    assert line.startswith("install.sh: ")
    assert told in line
    if broken == "ldd":
        assert (carried[0].parent / "libraries/libdw.so.1").exists()


def test_what_the_host_has_is_not_unpacked(carried: tuple[Path, Path], tools: Path) -> None:
    script(tools / "dpkg", "exit 127")
    script(tools / "ldconfig", r"printf '\tlibdw.so.1 (libc6) => /lib/libdw.so.1\n\tlibelf.so.1 (libc6) => /lib/libelf.so.1\n'")
    done = install(*carried, tools)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["this host has libdw and libelf, which nsys needs", "doctor says: fine"]


def test_install_says_what_pip_did_not_install(carried: tuple[Path, Path], tools: Path) -> None:
    (carried[1].parent / "pip/__main__.py").write_text("import sys; sys.exit('pip has its reasons')")
    done = install(*carried, tools)
    assert (done.returncode, done.stdout) == (2, "")
    first, last = done.stderr.splitlines()
    assert first == "pip has its reasons"
    assert last.startswith("install.sh: pip did not install stitchcuda-")


def make(module: Any, out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["gpu_bundle.py", "--out", out])
    module.main()


def older(folder: Path) -> Path:
    """A bundle of which something remains where a new one does not take its place."""
    folder.mkdir()
    for name in ("manifest.json", "install.sh", "old"):
        (folder / name).touch()
    return folder


@pytest.mark.parametrize("out", ["link", "."])
def test_a_bundle_goes_where_a_link_or_a_dot_leads(
    out: str, module: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = older(tmp_path / "real")
    (tmp_path / "link").symlink_to(real)
    monkeypatch.chdir(real if out == "." else tmp_path)
    make(module, out, monkeypatch)
    assert sorted(path.name for path in real.iterdir()) == ["install.sh", "manifest.json", "new"]
    assert (tmp_path / "link").is_symlink()
    assert f"{real}: 3 files" in capsys.readouterr().out


@pytest.mark.parametrize("out", ["file/gpu-bundle", "empty", "extension", "."])
def test_a_bundle_is_refused_in_one_sentence(
    out: str, module: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    (tmp_path / "extension").mkdir()
    (tmp_path / "extension/manifest.json").touch()  # of something else
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        make(module, out, monkeypatch)
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("gpu-bundle: ")
    assert "--out" in line
    assert (tmp_path / "extension/manifest.json").exists()


@pytest.mark.parametrize("failing", ["older", "gpu-bundle"])
def test_a_failure_leaves_the_older_bundle(
    failing: str, module: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, rename = older(tmp_path / "gpu-bundle"), Path.rename

    def broken(path: Path, target: Path) -> Path:
        if target.name == failing and path.name != "older":
            raise PermissionError("not this one")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", broken)
    with pytest.raises(SystemExit) as ended:
        make(module, str(out), monkeypatch)
    assert ended.value.code == 2
    assert "not this one" in capsys.readouterr().err
    assert sorted(path.name for path in out.iterdir()) == ["install.sh", "manifest.json", "old"]
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.more
@pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="needs dpkg, to make packages")
def test_libraries_that_the_host_lacks(project: Path, tools: Path, tmp_path: Path) -> None:
    """libdw and what it links to in turn, out of Debian's packages; what the host's loader knows is left alone."""
    packages = tmp_path / "packages"
    packages.mkdir()
    deb(packages, "libelf1t64", library(tmp_path, "libelf.so.1"))
    last = library(tmp_path, "libfarbelow.so.9")
    deb(packages, "zlib1g", last, library(tmp_path, "libunneeded.so.1"))
    deb(packages, "libdw1", library(tmp_path, "libdw.so.1", last))
    script(tools / "apt-get", f'cp "{packages}/$3"_*.deb .')
    out = tmp_path / "gpu-bundle"
    done = bundle(project, tools, out)
    assert "left out: libbz2-1.0, liblzma5, libzstd1: nsys' importer may need them" in done.stdout
    (out / "debs/libdw1_0.9_amd64.deb").write_text("left by an older bundle")
    python = host(tmp_path / "host")
    script(tools / "ldconfig", r"printf '\tlibelf.so.1 (libc6,x86-64) => /lib/x86_64-linux-gnu/libelf.so.1\n'")
    done = install(out, python, tools)
    assert done.returncode == 0, done.stderr
    libraries = tmp_path / "libraries"
    assert sorted(path.name for path in libraries.iterdir()) == ["libdw.so.1", "libfarbelow.so.9"]
    assert f"export LD_LIBRARY_PATH={libraries}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}" in done.stdout
    linked = subprocess.run(
        ["ldd", libraries / "libdw.so.1"], env={"LD_LIBRARY_PATH": str(libraries)}, capture_output=True, text=True, check=True
    )
    assert f"libfarbelow.so.9 => {libraries}/libfarbelow.so.9" in linked.stdout


def library(folder: Path, soname: str, *needs: Path) -> Path:
    """A shared object with this name to the loader."""
    made = folder / soname
    nothing = ["-x", "c", os.devnull, "-x", "none"]
    command = ["gcc", "-shared", "-nostdlib", f"-Wl,-soname,{soname}", "-Wl,--no-as-needed", *nothing]
    subprocess.run([*command, *needs, "-o", made], check=True)
    return made


def deb(folder: Path, package: str, *libraries: Path) -> None:
    """A package as Debian's are: the file under its version, and a link by the name that the loader looks for."""
    root = folder / package
    place = root / "usr/lib/x86_64-linux-gnu"
    place.mkdir(parents=True)
    for path in libraries:
        shutil.copy(path, place / f"{path.name}.4.2")
        (place / path.name).symlink_to(f"{path.name}.4.2")
    (root / "DEBIAN").mkdir()
    control = f"Package: {package}\nVersion: 1.0\nArchitecture: amd64\nMaintainer: nobody\nDescription: a test\n"
    (root / "DEBIAN/control").write_text(control)
    subprocess.run(["dpkg-deb", "--build", root, folder / f"{package}_1.0_amd64.deb"], check=True, capture_output=True)


@pytest.mark.long
def test_the_real_bundle_is_whole(tmp_path: Path) -> None:
    """Needs a package index and takes a minute: everything but torch comes out of the bundle, and nothing is missing."""
    out = tmp_path / "gpu-bundle"
    command = [sys.executable, str(ROOT / "scripts/gpu_bundle.py"), "--out", str(out), "--python", HERE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    python = host(tmp_path / "host")
    done = install(out, python, tmp_path)
    assert "tvm-ffi" in done.stdout, done.stderr
    whole = subprocess.run([python, "-m", "pip", "check"], capture_output=True, text=True, check=False)
    assert whole.returncode == 0, whole.stdout
