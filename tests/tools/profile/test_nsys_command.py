"""nsys as a command, played by a script that keeps its contract: where it is, what is asked of it, what its failures mean."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from stitchcuda.errors import Unavailable
from stitchcuda.sandbox import command
from stitchcuda.sandbox.command import Finished, unconfined
from stitchcuda.tools.profile import nsys_command
from stitchcuda.tools.profile.nsys_command import exported, find_nsys, recorded, under
from stitchcuda.tools.profile.nsys_export import read_export
from stitchcuda.tools.profile.ranges import CALL_RANGE
from tests.tools.profile.nsys_files import Export

NSYS = """#!/bin/sh
# As nsys: "profile" runs a program and leaves a report, "export" makes another file of it.
order=$1; shift
for option in "$@"; do case $option in --output=*) out=${option#--output=};; --*) ;; *) break;; esac; done
while [ "${1#--}" != "$1" ]; do echo "$1" >> "$(dirname "$out")/options"; shift; done
if [ $order = profile ]; then
    "$@"; code=$?
    [ $code = 0 ] || echo "The target application returned non-zero exit code $code"
    PROFILE
else
    EXPORT
fi
"""
REPORT = """echo "Generating '/tmp/nsys-report-2ee6.qdstrm'"; echo recorded > "$out.nsys-rep"
    echo "[1/1] [========================100%] report.nsys-rep"; echo "Generated:"; echo "    $out.nsys-rep"; exit $code"""
ONLY_RAW = """echo "Importer error status: The importer binary and its dependencies were not found."
    echo "Unable to retrieve the importer version: skipping importation of the QDSTRM file."
    echo raw > "$out.qdstrm"; echo "Generated:"; echo "    $out.qdstrm"; exit 0"""
NOTHING = 'echo "Generated:"; echo "    No reports were generated."; exit $code'


def fake(folder: Path, profile: str = REPORT, export: str = 'cp "$(dirname "$out")/made.sqlite" "$out"') -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    place = folder / "nsys"
    place.write_text(NSYS.replace("PROFILE", profile).replace("EXPORT", export))
    place.chmod(0o755)
    return place


def record(program: Sequence[str], folder: Path, run: Any, *, nsys: Path, seconds: float) -> Path:
    """The SQLite file of a program's recording."""
    report, own = folder / "report", nsys.resolve().parent.parent
    done = run([*under(nsys, report), *program], seconds=seconds, cwd=folder, read=(own,), write=(folder,))
    return exported(nsys, recorded(done, report), run)


def sample(folder: Path) -> None:
    """What the script's export finds, beside the report."""
    folder.mkdir(exist_ok=True)
    export = Export(folder / "made.sqlite", "2026")
    export.range(CALL_RANGE, 0, 100)
    export.kernel("k(int)", 2, 10, 20)
    export.close()


def test_from_a_program_to_a_profile(tmp_path: Path) -> None:
    sample(tmp_path / "out")
    nsys = fake(tmp_path / "tool" / "bin")
    done = record([sys.executable, "-c", "print('called')"], tmp_path / "out", command.run, nsys=nsys, seconds=60)
    assert done == tmp_path / "out" / "report.sqlite"
    assert read_export(done).kernels[0].name == "k(int)"
    options = (tmp_path / "out" / "options").read_text().splitlines()
    assert options[:-3] == [
        "--trace=cuda,nvtx", "--sample=none", "--cpuctxsw=none", "--cuda-graph-trace=node", "--capture-range=cudaProfilerApi",
        "--capture-range-end=stop", "--force-overwrite=true", f"--output={tmp_path}/out/report",
    ]  # fmt: skip
    assert options[-3:] == ["--type=sqlite", "--force-overwrite=true", f"--output={tmp_path}/out/report.sqlite"]


def test_a_place_with_a_percent_sign_is_meant_as_it_is() -> None:
    """In an output's name nsys replaces %p and others, and %% by %."""
    assert under(Path("nsys"), Path("/tmp/50%p/report"))[-1] == "--output=/tmp/50%%p/report"


def test_an_import_that_fails_for_want_of_libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nsys_command, "_LIBRARIES", {"libno-such-dw.so.1": "libdw1", "libno-such-elf.so.1": "libelf1"})
    with pytest.raises(Unavailable) as caught:
        record(["true"], tmp_path, unconfined, nsys=fake(tmp_path, ONLY_RAW), seconds=60)
    assert str(caught.value) == (
        "nsys recorded, but cannot read its own recording: its importer needs libdw1 and libelf1; install them "
        "(apt install libdw1 libelf1)"
    )
    monkeypatch.setattr(nsys_command, "_LIBRARIES", {"libc.so.6": "libc6"})
    with pytest.raises(Unavailable, match="is not beside it or does not start; install NVIDIA's whole nsight-systems"):
        record(["true"], tmp_path, unconfined, nsys=fake(tmp_path, ONLY_RAW), seconds=60)


@pytest.mark.parametrize(
    ("profile", "program", "said"),
    [
        (NOTHING, "exit 0", "nsys recorded nothing: the program never called cudaProfilerStart"),
        (NOTHING, "echo no such device; exit 3", "the profiled program ended with code 3: no such device"),
        (REPORT, "echo it fell over; exit 5", "the profiled program ended with code 5: it fell over"),
        ("echo unrecognised option \\'--cuda-graph-trace=node\\'; exit 1", "exit 0", "nsys is too old for what is asked of it"),
        ("echo Permission denied: $out; exit 1", "exit 0", "nsys may not write or trace here"),
        ("echo write: No space left on device; exit 1", "exit 0", "no space left for a recording"),
        ("echo something new; exit 9", "exit 0", "nsys ended with code 9 and left no report: something new"),
    ],
)
def test_a_recording_that_fails(tmp_path: Path, profile: str, program: str, said: str) -> None:
    with pytest.raises(Unavailable) as caught:
        record(["sh", "-c", program], tmp_path, unconfined, nsys=fake(tmp_path, profile), seconds=60)
    assert str(caught.value).startswith(said)
    assert "\n" not in str(caught.value)


def test_an_older_report_of_the_same_name_does_not_pass_for_this_one(tmp_path: Path) -> None:
    (tmp_path / "report.nsys-rep").write_text("of yesterday")
    with pytest.raises(Unavailable, match="the profiled program ended with code 3"):
        record(["sh", "-c", "exit 3"], tmp_path, unconfined, nsys=fake(tmp_path, NOTHING), seconds=60)
    with pytest.raises(Unavailable, match="nsys recorded nothing"):
        record(["true"], tmp_path, unconfined, nsys=fake(tmp_path, NOTHING), seconds=60)


def test_a_recording_that_does_not_end(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"nsys was ended after \d+ s, its time limit"):
        record(["sleep", "60"], tmp_path, command.run, nsys=fake(tmp_path / "tool"), seconds=1)


def test_an_nsys_that_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="nsys is not there or does not start"):
        recorded(Finished(127, "", 0.0), tmp_path / "report")


def test_an_export_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nsys_command, "_LIBRARIES", {})
    report = tmp_path / "report.nsys-rep"
    report.write_text("recorded")
    with pytest.raises(Unavailable, match="nsys export failed with code 2: cannot open it"):
        exported(fake(tmp_path, export="echo cannot open it; exit 2"), report, unconfined)
    with pytest.raises(Unavailable, match="nsys export failed with code 0: it said nothing"):
        exported(fake(tmp_path, export=":"), report, unconfined)


def executable(place: Path, text: str = "#!/bin/sh\n") -> Path:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)
    place.chmod(0o755)
    return place


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with nothing on its PATH; its roots are `opt` and `local`."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path


def found(machine: Path) -> str | None:
    place = find_nsys((machine / "opt", machine / "local"))
    return str(place.relative_to(machine)) if place else None


def test_where_nsys_is_found(machine: Path) -> None:
    """Nsight Compute's, Nsight Systems' own, the newest, the one on the PATH: each is preferred to what came before."""
    assert found(machine) is None
    executable(machine / "opt/nsight-systems/2031.1.1/bin/nsys").chmod(0o644)
    assert found(machine) is None, "what cannot be run is none"
    for place in (
        "local/cuda-13.0/nsight-compute-2025.3.0/host/target-linux-x64/nsys",
        "opt/nsight-compute/2025.10.0/host/target-linux-x64/nsys",
        "local/cuda-13.0/bin/nsys",
        "opt/nsight-systems/2025.9.1/target-linux-x64/nsys",
        "opt/nsight-systems/2025.10.1/bin/nsys",
        "bin/nsys",
    ):
        executable(machine / place)
        assert found(machine) == place


def test_beside_the_real_ncu(machine: Path) -> None:
    """ncu on the PATH is a link, or a script that names the real one."""
    nsys = executable(machine / "elsewhere/nsight-compute-2025.3.0/host/target-linux-x64/nsys")
    real = executable(machine / "elsewhere/nsight-compute-2025.3.0/target/linux-desktop-glibc_2_11_3-x64/ncu", "\x7fELF")
    (machine / "bin/ncu").symlink_to(real)
    assert find_nsys((machine / "opt",)) == nsys
    (machine / "bin/ncu").unlink()
    executable(machine / "bin/ncu", f'#!/bin/sh\nexec "{real}" "$@"\n')
    assert find_nsys((machine / "opt",)) == nsys
    shutil.rmtree(machine / "elsewhere")
    assert find_nsys((machine / "opt",)) is None
