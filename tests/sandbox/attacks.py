"""What a hostile program may try, as code for a `Prisoner`. Each sets `out` to True only if it got what it wanted."""

from __future__ import annotations

import os
from pathlib import Path

NAMELESS = f"\0stitchcuda-test-{os.getpid()}"
"""A socket in no file system, that the tests listen on."""

TRY = """
import ctypes, os, signal, socket, subprocess, threading
libc = ctypes.CDLL(None, use_errno=True)
def granted(act):
    try:
        return act() not in (False, -1)
    except (OSError, RuntimeError):
        return False
def writes(path):
    with open(path, "a") as file:
        file.write("x")
    return True
def reads(path):
    with open(path, "rb") as file:
        return bool(file.read(1))
"""

ATTACKS = {
    "an internet socket": "out = granted(lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM))",
    "a netlink socket": "out = granted(lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW))",
    "a local socket outside": "out = granted(lambda: socket.socket(socket.AF_UNIX).connect({outside!r} + '/socket') is None)",
    "a nameless socket outside": "out = granted(lambda: socket.socket(socket.AF_UNIX).connect({nameless!r}) is None)",
    "read a file outside": "out = granted(lambda: reads({secret!r}))",
    "read in the home": "out = granted(lambda: reads(os.path.expanduser('~root') + '/.bashrc'))",
    "list a folder outside": "out = granted(lambda: os.listdir({outside!r}))",
    "read the shadow file": "out = granted(lambda: reads('/etc/shadow'))",
    "write outside": "out = granted(lambda: writes({outside!r} + '/new'))",
    "change a file outside": "out = granted(lambda: writes({secret!r}))",
    "write a system folder": "out = granted(lambda: writes('/usr/local/stitchcuda-test'))",
    "write what may be read": "out = granted(lambda: writes({shown!r} + '/new'))",
    "a setting of the machine": "out = granted(lambda: writes('/proc/sys/kernel/core_pattern'))",
    "see the supervisor": "out = granted(lambda: os.path.exists('/proc/{supervisor}/stat') and {supervisor} > 50)",
    "the supervisor's environment": "out = granted(lambda: reads('/proc/{supervisor}/environ'))",
    "through process 1": "out = granted(lambda: reads('/proc/1/root' + {secret!r}))",
    "signal the supervisor": "out = granted(lambda: os.kill({supervisor}, 0) is None)",
    "kill everything": "out = granted(lambda: os.kill(-1, 0) is None)",
    "signal process 1": "out = granted(lambda: os.kill(1, signal.SIGTERM) is None)",
    "fork": "out = granted(lambda: os.fork() or os._exit(0))",
    "start a program": "out = granted(lambda: os.posix_spawn('/bin/true', ['true'], {{}}))",
    "become a program": "out = granted(lambda: os.execv('/bin/true', ['true']))",
    "trace process 1": "out = libc.ptrace(16, 1, 0, 0) == 0",
    "read another's memory": "out = libc.process_vm_readv({supervisor}, None, 0, None, 0, 0) == 0",
    "a new user namespace": "out = libc.unshare(0x10000000) == 0",
    "mount": "out = libc.mount(b'none', b'/tmp', b'tmpfs', 0, None) == 0",
    "a perf event": "out = libc.syscall(298, bytes(128), 0, -1, -1, 0) >= 0",
    "bpf": "out = libc.syscall(321, 0, bytes(128), 128) >= 0",
    "io_uring": "out = libc.syscall(425, 1, bytes(256)) >= 0",
    "a key": "out = libc.syscall(248, b'user', b'x', b'y', 1, -3) >= 0",
    "shared memory that stays": "out = libc.shmget(1234, 4096, 0o1600) >= 0",
    "hide from the supervisor": "out = libc.prctl(4, 0, 0, 0, 0) == 0",
    "outlive the supervisor": "out = libc.prctl(1, 0, 0, 0, 0) == 0",
    "a higher limit": "import resource; out = granted(lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1)))",
}
"""Names and what to try; {secret}, {outside}, {shown} and {supervisor} are filled in."""

HONEST = {
    "threads": "t = threading.Thread(target=lambda: None); t.start(); t.join(); out = True",
    "its scratch": "writes(scratch + '/mine'); out = reads(scratch + '/mine'); os.unlink(scratch + '/mine')",
    "a private /tmp": "writes('/tmp/x'); out = reads('/tmp/x')",
    "what it may read": "out = reads({shown!r} + '/file')",
    "Python's modules": "import xml.dom.minidom, sqlite3; out = True",
    "facts of the machine": "out = reads('/proc/cpuinfo') and reads('/proc/self/maps') and os.cpu_count() > 0",
    "random numbers": "out = len(os.urandom(8)) == 8 and reads('/dev/urandom')",
    "a name for a thread": "open(f'/proc/self/task/{{os.getpid()}}/comm', 'w').write('mine'); out = True",
    "a name, not cut first": "os.write(os.open(f'/proc/self/task/{{os.getpid()}}/comm', os.O_RDWR), b'mine'); out = True",
    "a signal to itself": "signal.signal(signal.SIGUSR1, lambda *a: None); os.kill(os.getpid(), signal.SIGUSR1); out = True",
    "a pair of sockets": "socket.socketpair(); out = True",
}


def fill(code: str, *, outside: Path, shown: Path, supervisor: int) -> str:
    places = {"secret": str(outside / "secret"), "outside": str(outside), "shown": str(shown), "supervisor": supervisor}
    places["nameless"] = NAMELESS
    return TRY + code.format(**places)
