"""Puts the protections of a child process in force one by one, and records those that this machine denies.

`prepare_supervisor` runs in the supervisor before the child exists (namespaces, mounts), `confine_child` in the child before it
touches anything foreign (limits, landlock, capabilities, system calls). The order here is the order in which they take effect.
Where to look next: `sandbox/supervisor.py` (who calls both), `sandbox/protections.py` (names and remedies).
"""

from __future__ import annotations

import functools
import os
import resource
import signal

from stitchcuda.sandbox import files, kernel, landlock, namespaces, syscalls
from stitchcuda.sandbox.policy import Bounds, Policy
from stitchcuda.sandbox.protections import ProtectionLog

_OPEN_FILES = 4096


def prepare_supervisor(policy: Policy | None, log: ProtectionLog) -> None:
    """Enters namespaces and mounts the child's view. Without a policy the child is trusted: only limits and the watch apply."""
    kernel.prctl(kernel.DUMPABLE, 1)       # without it a process may not write its own uid_map
    kernel.prctl(kernel.SUBREAPER, 1)
    if policy is not None:
        namespaces.enter(policy, log)


def confine_child(policy: Policy | None, bounds: Bounds, log: ProtectionLog) -> None:
    """Restricts this process. It must have a single thread, and only the descriptors that it will keep."""
    kernel.prctl(kernel.DEATH_SIGNAL, signal.SIGKILL)
    namespaces.die_first_without_memory()
    if policy is not None:
        namespaces.mount_proc(policy, bounds, log)
    log.attempt("limits", lambda: set_limits(bounds))
    if policy is None:
        kernel.prctl(kernel.DUMPABLE, 0)
        return
    log.attempt("privileges", lambda: kernel.prctl(kernel.NO_NEW_PRIVILEGES, 1))
    log.attempt("scopes", landlock.restrict_scopes)
    loopback = policy.loopback and "network" in log.on  # never on the machine's own network
    if policy.all_files:
        log.deny("landlock", "not asked for")
    else:
        rights = _rights(policy, private="mounts" in log.on, proc="proc" in log.on)
        log.attempt("landlock", lambda: landlock.restrict_files(rights, tcp=loopback))
    kernel.prctl(kernel.DUMPABLE, 1)
    filter_calls = functools.partial(syscalls.restrict, spawn=policy.spawn, local=policy.gpu or policy.local, loopback=loopback)
    if log.wants("seccomp") and "privileges" not in log.on:
        # Without "no new privileges" the filter needs a capability, which is dropped next.
        log.attempt("seccomp", filter_calls)
        log.attempt("capabilities", kernel.set_capabilities)
    else:
        log.attempt("capabilities", kernel.set_capabilities)
        log.attempt("seccomp", filter_calls)


def set_limits(bounds: Bounds) -> None:
    """Sets this process' resource limits, never above its hard limits."""
    wanted = {resource.RLIMIT_CORE: 0, resource.RLIMIT_NOFILE: _OPEN_FILES}
    if bounds.file:
        wanted[resource.RLIMIT_FSIZE] = bounds.file
    if bounds.cpu:
        wanted[resource.RLIMIT_CPU] = bounds.cpu
    if bounds.address:
        wanted[resource.RLIMIT_AS] = bounds.address + _mapped_bytes()
    for which, value in wanted.items():
        hard = resource.getrlimit(which)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(which, (value, value))


def _rights(policy: Policy, *, private: bool, proc: bool) -> list[tuple[str, int]]:
    rights = [(place, landlock.READ) for place in (*files.readable(policy), "/proc")]
    if policy.gpu:                         # `mounts.freeze_proc_but_own` leaves nothing else of /proc writable
        rights += [("/proc" if policy.spawn and proc else "/proc/self", landlock.READ | landlock.CHANGE)]
    rights += [(place, landlock.DEVICE) for place in files.device_files(gpu=policy.gpu)]
    rights += [(place, landlock.WRITE) for place in files.writable(policy)]
    if private:
        rights += [(place, landlock.WRITE) for place in files.PRIVATE]
    return rights


def _mapped_bytes() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
