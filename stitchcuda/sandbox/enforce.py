"""Puts the protections in force for a child, one after the other; what this machine denies is named and the rest stays.

Two halves: `outside` in the supervisor, before the child exists (namespaces, mounts), and `inside` in the child, before it
touches anything foreign (limits, landlock, capabilities, system calls). Where to look next: `sandbox/supervisor.py`,
`sandbox/protections.py`.
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


def outside(policy: Policy | None, layers: ProtectionLog) -> None:
    """In the supervisor. Without a policy the child is trusted: it is bounded and watched, not shut in."""
    kernel.prctl(kernel.DUMPABLE, 1)       # a process that hides may not write its own uid_map
    kernel.prctl(kernel.SUBREAPER, 1)
    if policy is not None:
        namespaces.enter(policy, layers)


def inside(policy: Policy | None, bounds: Bounds, layers: ProtectionLog) -> None:
    """In the child, single-threaded, with only the descriptors that it will keep."""
    kernel.prctl(kernel.DEATH_SIGNAL, signal.SIGKILL)
    namespaces.first_to_go()
    if policy is not None:
        namespaces.own_proc(policy, bounds, layers)
    layers.attempt("limits", lambda: limit(bounds))
    if policy is None:
        kernel.prctl(kernel.DUMPABLE, 0)
        return
    layers.attempt("privileges", lambda: kernel.prctl(kernel.NO_NEW_PRIVILEGES, 1))
    layers.attempt("scopes", landlock.restrict_scopes)
    loopback = policy.loopback and "network" in layers.on  # never on the machine's own network
    if policy.all_files:
        layers.deny("landlock", "not asked for")
    else:
        rights = _rights(policy, private="mounts" in layers.on, proc="proc" in layers.on)
        layers.attempt("landlock", lambda: landlock.restrict_files(rights, tcp=loopback))
    kernel.prctl(kernel.DUMPABLE, 1)
    filter_calls = functools.partial(syscalls.restrict, spawn=policy.spawn, local=policy.gpu, loopback=loopback)
    if layers.wants("seccomp") and "privileges" not in layers.on:
        # The filter then needs the very capability that goes next.
        layers.attempt("seccomp", filter_calls)
        layers.attempt("capabilities", kernel.set_capabilities)
    else:
        layers.attempt("capabilities", kernel.set_capabilities)
        layers.attempt("seccomp", filter_calls)


def limit(bounds: Bounds) -> None:
    """This process' resource limits; never above what it was given."""
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
    if policy.gpu:                         # see mounts.freeze_proc_but_own, which leaves nothing else of it writable
        rights += [("/proc" if policy.spawn and proc else "/proc/self", landlock.READ | landlock.CHANGE)]
    rights += [(place, landlock.DEVICE) for place in files.devices(gpu=policy.gpu)]
    rights += [(place, landlock.WRITE) for place in files.writable(policy)]
    if private:
        rights += [(place, landlock.WRITE) for place in files.PRIVATE]
    return rights


def _mapped_bytes() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
