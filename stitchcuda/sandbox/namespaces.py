"""Namespaces: users, network, processes, shared memory, mounts, host name. Each is tried on its own.

A user namespace grants the rest to an ordinary user; as root it also takes root's powers over the machine away, since
capabilities inside count for nothing outside. Where it is denied, root may still unshare the others. A process that unshares
processes stays outside itself: its first child becomes process 1, without which the namespace dies. That is `keeper`, a
trusted `cat` on a pipe: it ends when the pipe's other end closes, and everything in the namespace ends with it, daemons too.
Where to look next: `sandbox/mounts.py`, `sandbox/supervisor.py`.
"""

from __future__ import annotations

import contextlib
import functools
import os

from stitchcuda.sandbox import kernel, mounts
from stitchcuda.sandbox.policy import Bounds, Policy
from stitchcuda.sandbox.protections import ProtectionLog

_CATS = ("/bin/cat", "/usr/bin/cat", "/run/current-system/sw/bin/cat")
_PARTS = {"network": kernel.NEW_NET, "ipc": kernel.NEW_IPC | kernel.NEW_UTS}


def enter(policy: Policy, layers: ProtectionLog) -> None:
    """Unshare what can be unshared and mount the child's view; this process stays in its old process namespace."""
    layers.attempt("user", _new_user)
    for name, flag in _PARTS.items():
        layers.attempt(name, functools.partial(kernel.unshare, flag))
    if policy.loopback and "network" in layers.on:
        with contextlib.suppress(OSError):  # then nobody is reached, and who tries will say so
            kernel.raise_loopback()
    if policy.all_files:
        layers.deny("mounts", "not asked for")
    else:
        layers.attempt("mounts", lambda: _new_view(policy))
    layers.attempt("processes", lambda: kernel.unshare(kernel.NEW_PID))


def own_proc(policy: Policy, bounds: Bounds, layers: ProtectionLog) -> None:
    """Called by the first process inside: /proc shows this namespace alone, and only its own folder there can be written, or
    where a GPU's tool starts others, theirs."""

    def show() -> None:
        if "mounts" not in layers.on:
            mounts.detach()
        mounts.own_proc()
        first_to_go()
        if bounds.tasks:
            _limit_numbers(bounds.tasks)
        if not policy.gpu:
            mounts.freeze_proc()
        elif policy.spawn:
            mounts.freeze_proc_but_processes()
        else:
            mounts.freeze_proc_but_own()

    if "processes" in layers.on:
        layers.attempt("proc", show)
    else:
        layers.deny("proc", "needs a process namespace")
    if "proc" not in layers.on and "mounts" in layers.on and policy.gpu:
        with contextlib.suppress(OSError):  # /proc is the machine's, and read-only: CUDA may not start, nothing is opened
            mounts.freeze_proc_but_own()


def first_to_go() -> None:
    """When the machine runs out of memory, the kernel takes this one. A /proc that cannot be written is no reason to stop."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")


def _limit_numbers(tasks: int) -> None:
    """A hard end to fork bombs, quicker than the watch: since Linux 6.14 each process namespace counts its own numbers."""
    release = tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2] if part.isdigit())
    if release >= (6, 14):                 # before, the setting is the machine's
        with contextlib.suppress(OSError), open("/proc/sys/kernel/pid_max", "w") as file:
            file.write(str(max(512, 2 * tasks)))


def keeper(layers: ProtectionLog) -> tuple[int, int] | None:
    """Process 1 of the new namespace and the descriptor that keeps it alive; None where there is no namespace."""
    if "processes" not in layers.on:
        return None
    cat = next((path for path in _CATS if os.access(path, os.X_OK)), _CATS[0])
    its, ours = os.pipe2(os.O_CLOEXEC)
    try:
        silent = [(os.POSIX_SPAWN_OPEN, descriptor, os.devnull, os.O_WRONLY, 0) for descriptor in (1, 2)]
        pid = os.posix_spawn(cat, ["cat"], {}, file_actions=[(os.POSIX_SPAWN_DUP2, its, 0), *silent], setsid=True)
    except OSError:
        os.close(ours)
        raise
    finally:
        os.close(its)
    return pid, ours


def _new_user() -> None:
    """The same user and group, and nobody else. Raises `OSError` where it is forbidden."""
    user, group = os.geteuid(), os.getegid()
    kernel.unshare(kernel.NEW_USER)
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def _new_view(policy: Policy) -> None:
    mounts.detach()
    mounts.enter(policy)
