"""The bundle for a GPU host without a network: what is in it, and that it installs there and nowhere it should not."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
HERE = f"{sys.version_info.major}.{sys.version_info.minor}"
OTHER = "3.20"  # a Python that no test runs on

BACKEND = '''
import zipfile
def build_wheel(folder, config_settings=None, metadata_directory=None):
    name = "stitchcuda-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(f"{folder}/{name}", "w") as wheel:
        wheel.write("main.py", "stitchcuda/__main__.py")
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
    (folder / "main.py").write_text("import sys; print('doctor says: fine', sys.argv[1:])")
    return folder


def script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


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


def install(bundle: Path, python: Path, tools: Path) -> subprocess.CompletedProcess[str]:
    """As on the host, with the system left as it is."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "PYTHON", "LD_"))}
    environment |= {"PATH": f"{tools}{os.pathsep}{os.environ['PATH']}", "PYTHON": str(python), "PIP_CONFIG_FILE": os.devnull}
    environment["LIBRARIES"] = str(bundle.parent / "libraries")
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


def test_it_installs_without_a_network_and_again(project: Path, tools: Path, tmp_path: Path) -> None:
    out = tmp_path / "gpu-bundle"
    assert bundle(project, tools, out).returncode == 0
    python = host(tmp_path / "host")
    done = install(out, python, tools)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "doctor says: fine ['doctor']"
    # The same version with other code, as between two bundles of a day; and doctor's exit code is install.sh's.
    (project / "main.py").write_text("import sys; print('doctor says: a tool is missing'); sys.exit(2)")
    assert bundle(project, tools, out, HERE, "--toolkit").returncode == 0, "a bundle takes the place of an older one"
    done = install(out, python, tools)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (2, "doctor says: a tool is missing")
    assert list(tmp_path.glob("host/lib/python*/site-packages/cuda_toolkit.py")), "a toolkit that was asked for is installed"


def test_install_refuses(project: Path, tools: Path, tmp_path: Path) -> None:
    out = tmp_path / "gpu-bundle"
    assert bundle(project, tools, out).returncode == 0
    done = install(out, host(tmp_path / "bare", torch=False, pip=False), tools)
    assert done.returncode != 0
    assert "has no torch and the bundle brings none" in done.stderr
    done = install(out, tmp_path / "nowhere/python", tools)
    assert done.returncode == 2
    assert "say which Python with PYTHON=" in done.stderr
    python = host(tmp_path / "host", pip=False)
    done = install(out, python, tools)
    assert "has no pip" in done.stderr
    (out / "wheels/needed-1.0-py3-none-any.whl").write_bytes(b"cut off on the way")
    done = install(out, python, tools)
    assert done.returncode != 0
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
    assert done.returncode == 1
    assert done.stderr.startswith("gpu-bundle: pip download failed: ERROR: ")
    assert "later" in done.stderr
    assert not out.exists()
    out.mkdir()
    (out / "thesis.txt").write_text("mine")
    done = bundle(project, tools, out)
    assert "is no bundle" in done.stderr
    assert (out / "thesis.txt").read_text() == "mine"
    assert "is not a version such as 3.12" in bundle(project, tools, out, "python3.12").stderr


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
