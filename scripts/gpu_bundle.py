"""Collects into one folder what a GPU host without a network needs: `make gpu-bundle`, then carry the folder there.

    wheels/        StitchCUDA and what it depends on, for one Python on x86-64 Linux; torch only when asked for
    debs/          the shared libraries that nsys' importer needs and slim images lack
    install.sh     installs all of it there, and ends with what doctor says
    manifest.json  versions and SHA-256 of every file, and what had to be left out

It changes nothing on this machine but that folder. Where to look next: `gpu_bundle_install.sh`, docs/gpu.md.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Iterable
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path
from typing import NoReturn

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename

ROOT = Path(__file__).resolve().parent.parent
BESIDES = ("ncu-report",)                  # reads Nsight Compute's reports; nothing of ours depends on it
GLIBC = 28                                 # glibc 2.28: Debian 10, Ubuntu 18.10, RHEL 8 and whatever is younger
DEBS = ("libdw1", "libelf1", "libbz2-1.0", "liblzma5", "libzstd1", "zlib1g")  # libdw1, libelf1 and what they link to
_ROUNDS = 8                                # what pip did not see brings what pip did not see, a few times at most
README = """\
StitchCUDA {version} for a GPU host without a network: Python {python}, x86-64 Linux.

Needed there: that Python with pip and torch, g++, an NVIDIA driver and a CUDA toolkit.
Run ./install.sh; it checks every file that manifest.json lists, installs, and ends with what "stitchcuda doctor" says.
  PYTHON=/path/to/python ./install.sh    into another Python, such as that of a virtual environment
  LIBRARIES=DIR ./install.sh             puts the shared libraries for nsys there and leaves the system as it is
Where the system's Python refuses packages ("externally managed"), make a virtual environment that sees its torch:
  python3 -m venv --system-site-packages env && PYTHON=env/bin/python ./install.sh
manifest.json has every file's version and SHA-256, and what was left out.
"""


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "gpu-bundle", help="the folder to make")
    parser.add_argument("--python", default="3.12", help="the Python of the GPU host, such as 3.12")
    parser.add_argument("--torch", action="store_true", help="also torch with its CUDA libraries: gigabytes")
    parser.add_argument("--toolkit", action="store_true", help="also nvcc and NVIDIA's headers, for a host without a toolkit")
    parser.add_argument("--project", type=Path, default=ROOT, help="the repository to bundle")
    asked = parser.parse_args()
    if not re.fullmatch(r"3\.\d+", asked.python):
        refuse(f"--python {asked.python} is not a version such as 3.12")
    try:
        out = Path(os.path.realpath(asked.out))
        left_out = bundle(asked.project, out, asked.python, torch=asked.torch, toolkit=asked.toolkit)
    except OSError as error:
        refuse(f"the bundle cannot be made in {asked.out} ({error}): mend that, or give another folder with --out")
    files = [path for path in out.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files) / 1e6
    print(f"{out}: {len(files)} files, {size:.0f} MB, for Python {asked.python} on x86-64 Linux")
    for what in left_out:
        print(f"left out: {what}")
    print(f"carry it to the GPU host and run there: {out.name}/install.sh")


def refuse(why: str) -> NoReturn:
    """Ends the program: one sentence, and exit code 2."""
    print(f"gpu-bundle: {why}", file=sys.stderr)
    sys.exit(2)


def bundle(project: Path, out: Path, python: str, *, torch: bool = False, toolkit: bool = False) -> list[str]:
    """Makes the folder `out`, a path without links, and returns what had to be left out. Exits where that cannot be.

    An older bundle there is removed once the new one is in its place, and not before.
    """
    if out.exists() and not ((out / "manifest.json").is_file() and (out / "install.sh").is_file()):
        refuse(f"{out} is there and is no bundle: give another folder with --out")
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".gpu-bundle-") as scratch:
        partial = Path(scratch) / "bundle"
        left_out = fill(partial, project, python, torch=torch, toolkit=toolkit)
        aside = Path(scratch) / "older"
        try:
            if out.exists():
                out.rename(aside)
            partial.rename(out)
        except BaseException:
            if aside.exists():
                aside.rename(out)
            raise
    return left_out


def fill(folder: Path, project: Path, python: str, *, torch: bool, toolkit: bool) -> list[str]:
    """Everything that a bundle holds."""
    wheels, debs = folder / "wheels", folder / "debs"
    wheels.mkdir(parents=True)
    debs.mkdir()
    _, version = named(build(project, wheels))
    collect(wheels, wanted(project, torch=torch, toolkit=toolkit), python, project / "constraints.txt")
    if any(wheels.glob("torch-*+cpu-*.whl")):
        refuse("pip found a CPU build of torch: point it to CUDA builds, or leave BUNDLE_TORCH away")
    left_out = libraries(debs)
    if not torch:
        left_out.append("torch: the GPU host's own is used; BUNDLE_TORCH=1 brings it along")
    shutil.copy(Path(__file__).with_name("gpu_bundle_install.sh"), folder / "install.sh")
    (folder / "install.sh").chmod(0o755)
    (folder / "README.txt").write_text(README.format(version=version, python=python))
    manifest = {
        "stitchcuda": version,
        "python": python,
        "platform": f"manylinux_2_{GLIBC}_x86_64",
        "left_out": left_out,
        "files": [entry(path, folder) for path in sorted(folder.rglob("*")) if path.is_file()],
    }
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
    return left_out


def build(project: Path, wheels: Path) -> Path:
    """Our own wheel, from a copy without what earlier builds left in the tree."""
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / "project"
        anywhere = shutil.ignore_patterns(".*", "__pycache__")
        outermost = shutil.ignore_patterns("*.egg-info", "build", "dist", "gpu-bundle", "tests", "benchmarks")

        def left_out(folder: str, names: list[str]) -> set[str]:
            """Names that are not copied. Only the outermost `build` is left from a wheel: `tools/build` is a package."""
            return anywhere(folder, names) | (outermost(folder, names) if folder == str(project) else set())

        shutil.copytree(project, copy, ignore=left_out, symlinks=True)
        pip(f"no wheel of {project}", "wheel", "--no-deps", "--wheel-dir", str(wheels), str(copy))
    (made,) = wheels.glob("*.whl")
    return made


def wanted(project: Path, *, torch: bool, toolkit: bool) -> list[Requirement]:
    """What pyproject.toml depends on, and `BESIDES`; torch only when asked for."""
    told = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    lines = [*told["dependencies"], *(told["optional-dependencies"]["toolkit"] if toolkit else ()), *BESIDES]
    requirements = [Requirement(line) for line in lines]
    return [one for one in requirements if torch or not canonicalize_name(one.name).startswith("torch")]


def collect(wheels: Path, requirements: list[Requirement], python: str, constraints: Path) -> None:
    """Downloads wheels until nothing that one of them needs under `python` is missing.

    pip reads the conditions in a wheel's needs ("only below Python 3.12") for the Python it runs in, not for the one that
    it downloads for; so what is missing is told from the wheels themselves.
    """
    platforms = [f"manylinux_2_{minor}_x86_64" for minor in range(GLIBC, 4, -1)]
    platforms += ["manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64"]
    order = ["download", "--dest", str(wheels), "--only-binary=:all:", "--implementation", "cp", "--python-version", python]
    order += [part for platform in platforms for part in ("--platform", platform)]
    order += ["--constraint", str(constraints)] if constraints.is_file() else []
    missing = [str(one) for one in requirements]
    for _ in range(_ROUNDS):
        if not missing:
            return
        pip(f"no wheels for Python {python} that go together, or pip does not reach its index", *order, *missing)
        missing = lacking(wheels, requirements, python)
    if missing:
        refuse(f"no wheel for Python {python} of: {', '.join(missing)}")


def lacking(wheels: Path, requirements: Iterable[Requirement], python: str) -> list[str]:
    """The requirements, direct or of a wheel that is here, for which no wheel is here."""
    here = {named(path)[0]: path for path in wheels.glob("*.whl")}
    target = {
        "implementation_name": "cpython", "implementation_version": f"{python}.0", "os_name": "posix",
        "platform_machine": "x86_64", "platform_python_implementation": "CPython", "platform_release": "",
        "platform_system": "Linux", "platform_version": "", "python_full_version": f"{python}.0",
        "python_version": python, "sys_platform": "linux",
    }  # fmt: skip
    queue, seen, missing = list(requirements), set[tuple[str, frozenset[str]]](), dict[str, str]()
    while queue:
        one = queue.pop()
        name, extras = canonicalize_name(one.name), frozenset(one.extras)
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        if name not in here:
            missing[name] = str(Requirement(str(one).partition(";")[0]))
            continue
        for line in metadata(here[name]).get_all("Requires-Dist") or ():
            need = Requirement(line)
            if need.marker is None or any(need.marker.evaluate(target | {"extra": extra}) for extra in ("", *extras)):
                queue.append(need)
    return sorted(missing.values())


def libraries(debs: Path) -> list[str]:
    """Downloads the Debian packages of this machine's release; what cannot be had is named."""
    lost = []
    for package in DEBS:
        # Ubuntu 24.04 and Debian 13 renamed some for their 64-bit times.
        tried = [download(debs, name) for name in (package, f"{package}t64")] if shutil.which("apt-get") else [False]
        if not any(tried):
            lost.append(package)
    if not lost:
        return []
    how = "on Debian or Ubuntu, run apt-get download with these names in the folder debs"
    return [f"{', '.join(lost)}: nsys' importer may need them where the GPU host's image is slim; {how}"]


def download(folder: Path, package: str) -> bool:
    """Whether apt had the package. What is in `folder` already is not asked for again."""
    if any(folder.glob(f"{package.removesuffix('t64')}*_*.deb")):
        return True
    done = subprocess.run(["apt-get", "download", "-qq", package], cwd=folder, capture_output=True, check=False)
    return done.returncode == 0


def pip(failed: str, *arguments: str) -> None:
    """pip of this Python, quiet. Where it fails, exits with what that means and what pip says."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", *arguments]
    # The Makefile's constraints would hold for the tools that build our wheel too.
    environment = {name: value for name, value in os.environ.items() if name != "PIP_CONSTRAINT"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or [done.stderr.strip()[-500:]]
        refuse(f"{failed}: {'; '.join(errors)}")


def metadata(wheel: Path) -> Message:
    """A wheel's METADATA."""
    with zipfile.ZipFile(wheel) as archive:
        (inside,) = [name for name in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", name)]
        return HeaderParser().parsestr(archive.read(inside).decode())


def named(file: Path) -> tuple[str, str]:
    """Name and version of a wheel or a Debian package, from its file's name; of another file its name alone."""
    if file.suffix == ".whl":
        name, version, _, _ = parse_wheel_filename(file.name)
        return name, str(version)
    if file.suffix == ".deb":
        package, deb_version, _ = file.name.split("_", 2)
        return package, deb_version.replace("%3a", ":")
    return file.name, ""


def entry(file: Path, folder: Path) -> dict[str, object]:
    """A file's line in the manifest."""
    name, version = named(file)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    path = file.relative_to(folder).as_posix()
    return {"path": path, "name": name, "version": version, "bytes": file.stat().st_size, "sha256": digest}


if __name__ == "__main__":
    main()
