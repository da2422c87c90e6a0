"""Enters namespaces for a child: users, network, processes, shared memory, mounts, host name. Each is tried on its own.

A user namespace lets an ordinary user enter the others; it also takes root's powers over the machine away, since capabilities
in it count for nothing outside. If it is denied, root may still enter the others. A process that unshares processes stays
outside itself, and its first child becomes process 1, with which the namespace dies. That is `start_keeper`'s trusted `cat`
on a pipe: it ends when the pipe closes, and everything in the namespace ends with it, daemons too.
Where to look next: `sandbox/mounts.py` (the file system), `sandbox/supervisor.py` (who holds the pipe).
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


def enter(policy: Policy, log: ProtectionLog) -> None:
    """Enters what can be entered and mounts the child's view. This process stays in its old process namespace."""
    log.attempt("user", _new_user)
    for name, flag in _PARTS.items():
        log.attempt(name, functools.partial(kernel.unshare, flag))
    if policy.loopback and "network" in log.on:
        with contextlib.suppress(OSError):  # then the child's processes cannot connect, and say so
            kernel.raise_loopback()
    if policy.all_files:
        log.deny("mounts", "not asked for")
    else:
        log.attempt("mounts", lambda: _new_view(policy))
    log.attempt("processes", lambda: kernel.unshare(kernel.NEW_PID))


def mount_proc(policy: Policy, bounds: Bounds, log: ProtectionLog) -> None:
    """Mounts a /proc that shows this process namespace alone, and makes it read-only but for what CUDA needs. Called by the
    first process inside."""

    def show() -> None:
        if "mounts" not in log.on:
            mounts.detach()
        mounts.mount_proc()
        die_first_without_memory()
        if bounds.tasks:
            _limit_numbers(bounds.tasks)
        if not policy.gpu:
            mounts.freeze_proc()
        elif policy.spawn:
            mounts.freeze_proc_but_processes()
        else:
            mounts.freeze_proc_but_own()

    if "processes" in log.on:
        log.attempt("proc", show)
    else:
        log.deny("proc", "needs a process namespace")
    if "proc" not in log.on and "mounts" in log.on and policy.gpu:
        with contextlib.suppress(OSError):  # else /proc stays read-only: CUDA may not start, but nothing is exposed
            mounts.freeze_proc_but_own()


def die_first_without_memory() -> None:
    """Makes the kernel kill this process first when the machine runs out of memory; ignored if /proc cannot be written."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")


def _limit_numbers(tasks: int) -> None:
    """Limits process numbers, which stops fork bombs sooner than the watch: from Linux 6.14 on, each namespace has its own."""
    release = tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2] if part.isdigit())
    if release >= (6, 14):                 # before 6.14 the setting is the machine's
        with contextlib.suppress(OSError), open("/proc/sys/kernel/pid_max", "w") as file:
            file.write(str(max(512, 2 * tasks)))


def start_keeper(log: ProtectionLog) -> tuple[int, int] | None:
    """Starts process 1 of the new namespace. Returns (pid, descriptor that keeps it alive), or None without namespace."""
    if "processes" not in log.on:
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
    """Enters a user namespace with this user and group alone. Raises `OSError` if that is forbidden."""
    user, group = os.geteuid(), os.getegid()
    kernel.unshare(kernel.NEW_USER)
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def _new_view(policy: Policy) -> None:
    mounts.detach()
    mounts.enter(policy)
