"""The workspace: nothing half-written is ever read, nothing recorded is lost, and what is wrong is said in one sentence."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import resource
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from stitchcuda.errors import BadInput, SessionBusy, Unavailable
from stitchcuda.state import Attempt, Settings
from stitchcuda.store import FolderStore, SessionLock, SessionRecord, Workspace, get_tree, materialise, put_tree


def attempt(number: int, **changes: object) -> Attempt:
    facts = {
        "id": f"a{number}", "parent": f"a{number - 1}" if number else None, "base": None, "task": "r00", "plan_version": 1,
        "ordinal": number, "program": "0" * 64, "evidence": "1" * 64, "review": "2" * 64, "tier": "simulated", "built": True,
        "correct": True, "kept": True, "route": "next_task", "route_reason": "correct", "predicted_ms": 0.1,
    }  # fmt: skip
    return Attempt.model_validate(facts | changes)


def record(home: Workspace, name: str = "mlp") -> SessionRecord:
    digest = home.store.put(b"class Model: ...")
    return SessionRecord(name=name, reference=digest, reference_name="mlp.py", source=digest, settings=Settings())


def test_artefacts_come_back_by_their_digest(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    digest = store.put(b"kernel")
    assert digest == hashlib.sha256(b"kernel").hexdigest()
    assert store.put(b"kernel") == digest
    assert FolderStore(tmp_path).get(digest) == b"kernel"


def test_a_damaged_artefact_is_refused_and_repaired_by_who_has_the_bytes(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    digest = store.put(b"kernel")
    path = tmp_path / "artefacts" / digest[:2] / digest[2:]
    path.write_bytes(b"kernal")
    with pytest.raises(Unavailable, match="damaged"):
        store.get(digest)
    store.put(b"kernel")
    assert store.get(digest) == b"kernel"
    path.unlink()
    with pytest.raises(Unavailable, match="copied whole"):
        store.get(digest)


def test_a_program_has_one_digest_and_comes_back_as_a_folder(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    files: dict[str, str | bytes] = {"model_new.py": "class M: ...", "kernels/a.cu": "// é", "constants.safetensors": b"\xff"}
    digest = put_tree(store, files)
    assert digest == put_tree(store, dict(reversed(files.items())))
    assert digest != put_tree(store, files | {"kernels/a.cu": "// e"})
    assert get_tree(store, digest)["constants.safetensors"] == b"\xff"
    folder = materialise(store, digest, tmp_path / "program")
    (folder / "left_over.py").write_text("")
    materialise(store, digest, folder)
    assert sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()) == sorted(files)


def test_several_threads_want_one_program_as_a_folder(tmp_path: Path) -> None:
    """Candidates that wrote the same: whoever has its folder goes on reading in it while the others ask."""
    store = FolderStore(tmp_path)
    files: dict[str, str | bytes] = {f"kernels/{number}.cu": f"// {number}\n" for number in range(20)}
    digest = put_tree(store, files)
    wrong: list[BaseException] = []

    def work(folder: Path, ready: threading.Barrier) -> None:
        ready.wait()
        try:
            found = materialise(store, digest, folder)
            assert {f"kernels/{path.name}": path.read_text() for path in found.glob("kernels/*")} == files
        except BaseException as error:
            wrong.append(error)

    for number in range(10):
        ready = threading.Barrier(4)
        threads = [threading.Thread(target=work, args=(tmp_path / "programs" / str(number), ready)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []


@pytest.mark.parametrize("name", ["/etc/passwd", "../outside.py", ""])
def test_a_program_stays_inside_its_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadInput, match="inside the program"):
        put_tree(FolderStore(tmp_path), {name: "x"})


def test_the_ledger_takes_each_attempt_once(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    first = store.append("s", attempt(0))
    again = store.append("s", attempt(0, correct=False, kept=False))
    assert again == first
    assert FolderStore(tmp_path).append("s", attempt(0, kept=False)) == first
    assert list(FolderStore(tmp_path).attempts("s")) == ["a0"]


def test_a_line_torn_by_a_crash_never_became_an_attempt(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    for number in range(3):
        store.append("s", attempt(number))
    path = tmp_path / "sessions" / "s" / "ledger.jsonl"
    whole = path.read_bytes()
    last = whole.rindex(b"\n", 0, -1) + 1
    for cut in range(last, len(whole)):
        path.write_bytes(whole[:cut])
        assert list(FolderStore(tmp_path).attempts("s")) == ["a0", "a1"]
    FolderStore(tmp_path).append("s", attempt(2))
    assert path.read_bytes() == whole


def test_a_damaged_line_inside_the_ledger_is_refused_by_its_number(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    for number in range(3):
        store.append("s", attempt(number))
    path = tmp_path / "sessions" / "s" / "ledger.jsonl"
    path.write_text(path.read_text().replace('a1\\"', 'a7\\"', 1))
    with pytest.raises(Unavailable, match="line 2"):
        FolderStore(tmp_path).attempts("s")


def test_the_workspace_holds_no_absolute_path(tmp_path: Path) -> None:
    home = Workspace(tmp_path / "w")
    home.create(record(home))
    home.store.append("mlp", attempt(0))
    for path in home.root.rglob("*"):
        assert not path.is_file() or str(tmp_path).encode() not in path.read_bytes(), path


def test_the_workspace_is_the_argument_else_the_environment_else_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("STITCHCUDA_WORKSPACE", raising=False)
    assert Workspace().root == tmp_path / ".stitchcuda"
    monkeypatch.setenv("STITCHCUDA_WORKSPACE", str(tmp_path / "environment"))
    assert Workspace().root == tmp_path / "environment"
    assert Workspace(tmp_path / "argument").root == tmp_path / "argument"


def test_one_that_is_not_here_but_above_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a workbench, whose session lies in the folder that it was made in."""
    monkeypatch.delenv("STITCHCUDA_WORKSPACE", raising=False)
    Workspace(tmp_path / ".stitchcuda")
    (tmp_path / "bench/.workbench").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "bench")
    with pytest.raises(BadInput, match=rf"with --workspace, such as {tmp_path}/\.stitchcuda$"):
        Workspace(create=False)
    assert not (tmp_path / "bench/.stitchcuda").exists()


def test_sessions_are_named_once_or_numbered(tmp_path: Path) -> None:
    home = Workspace(tmp_path)
    assert [home.create(record(home, "mlp-")).name for _ in range(3)] == ["mlp-1", "mlp-2", "mlp-3"]
    home.create(record(home))
    with pytest.raises(BadInput, match="exists already"):
        home.create(record(home))
    with pytest.raises(BadInput, match="cannot name a session"):
        home.create(record(home, "../mlp"))
    assert [found.name for found in home.sessions()] == ["mlp", "mlp-1", "mlp-2", "mlp-3"]
    with pytest.raises(BadInput, match=r"no session 'gone'.*mlp-1, mlp-2"):
        home.record("gone")


def test_reading_wants_a_workspace_that_is_there(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no workspace at"):
        Workspace(tmp_path / "nowhere", create=False)


def test_a_workspace_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match=r"cannot write .*file/w"):
        Workspace(tmp_path / "file" / "w")


def test_no_room_is_said_with_the_path_and_leaves_nothing_behind(tmp_path: Path) -> None:
    def work() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        store = FolderStore(tmp_path)
        with pytest.raises(Unavailable, match=f"no space left to write {tmp_path}"):
            store.put(b"x" * 8192)
        assert [path for path in tmp_path.rglob("*") if path.is_file()] == []

    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    process.join()
    assert process.exitcode == 0


def test_two_processes_on_one_session_and_the_lock_of_a_dead_one(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from stitchcuda.store import SessionLock\n"
        "with SessionLock(Path(sys.argv[1])):\n print('held', flush=True); time.sleep(60)"
    )
    other = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE)
    assert other.stdout is not None
    other.stdout.readline()
    lock = SessionLock(tmp_path)
    assert lock.owner()
    with pytest.raises(SessionBusy, match=f"process {other.pid}"):
        lock.__enter__()
    os.kill(other.pid, 9)
    other.wait()
    assert not lock.owner()
    with lock:
        assert lock.owner()
        assert (tmp_path / "lock").read_text() == str(os.getpid())
    assert not lock.owner()


def test_session_json_is_readable(tmp_path: Path) -> None:
    home = Workspace(tmp_path)
    home.create(record(home))
    assert json.loads((home.folder("mlp") / "session.json").read_text())["name"] == "mlp"
    assert (home.folder("mlp") / "mlp.py").read_bytes() == b"class Model: ..."
