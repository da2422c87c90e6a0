"""A PostgreSQL server of our own, with a data folder of its own, from the programs that this machine has; no other is touched.

The server refuses to run as root, so root starts it as an ordinary user.
"""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PASSWORD = "not-to-be-shown"


def programs() -> Path | None:
    """The folder of initdb and pg_ctl, the newest one; None where there is no server."""
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: path.parent.name.zfill(4))
    onpath = shutil.which("initdb")
    places += [Path(onpath).resolve().parent] if onpath else []
    return next((place for place in reversed(places) if (place / "initdb").exists()), None)


class Server:
    """A server on a free port of 127.0.0.1; a context manager that stops it and removes its folder.

    `also` are more of this machine's addresses to listen on, each with the one host that may come there.
    """

    def __init__(self, programs: Path, also: Mapping[str, str] | None = None) -> None:
        self._programs, self._also = programs, also or {}
        self._user = _ordinary_user()
        self.folder = Path(tempfile.mkdtemp(prefix="stitchcuda-postgres-"))
        self.port = _free_port()

    @property
    def url(self) -> str:
        return f"postgresql://tester:{PASSWORD}@127.0.0.1:{self.port}/postgres"

    def __enter__(self) -> Server:
        (self.folder / "password").write_text(PASSWORD)
        if self._user:
            for path in (self.folder, self.folder / "password"):
                shutil.chown(path, self._user)
        password = f"--pwfile={self.folder / 'password'}"
        self._do("initdb", "--auth=scram-sha-256", "--username=tester", password, "--no-sync", "--encoding=UTF8", "--locale=C")
        with (self.folder / "data" / "pg_hba.conf").open("a") as rules:
            rules.writelines(f"host all all {who}/32 scram-sha-256\n" for who in self._also.values())
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self) -> None:
        addresses = ",".join(("127.0.0.1", *self._also))
        options = f"-p {self.port} -c listen_addresses={addresses} -c unix_socket_directories= -c fsync=off"
        self._do("pg_ctl", "--wait", "--silent", f"--log={self.folder / 'log'}", f"--options={options}", "start")

    @property
    def pid(self) -> int:
        return int((self.folder / "data" / "postmaster.pid").read_text().split()[0])

    def stop(self) -> None:
        self._do("pg_ctl", "--wait", "--silent", "--mode=immediate", "stop", check=False)

    def _do(self, program: str, *arguments: str, check: bool = True) -> None:
        command = [str(self._programs / program), f"--pgdata={self.folder / 'data'}", *arguments]
        who: dict[str, Any] = {"user": self._user, "group": pwd.getpwnam(self._user).pw_gid} if self._user else {}
        # No pipes: the server would inherit them and keep them open.
        with (self.folder / "said").open("w") as said:
            done = subprocess.run(command, cwd="/", stdout=said, stderr=said, timeout=60, check=False, **who)
        if check and done.returncode:
            raise RuntimeError(f"{program} failed: {(self.folder / 'said').read_text()}")


def _ordinary_user() -> str:
    """Whom root may run a server as; "" for who is not root."""
    if os.geteuid() != 0:
        return ""
    known = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in known else "nobody"


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
