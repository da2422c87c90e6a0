"""Filters system calls (seccomp): a child cannot make calls that no compiler and no tensor program needs.

It lists what is refused, not what is allowed: CUDA's driver and Python use hundreds of calls that change with versions, and
files, network and processes are closed by namespaces and landlock too. Refused are sockets, other processes' memory, mounts,
namespaces, bpf, io_uring and keys; with `spawn=False` also new processes. The filter is assembled here, because libseccomp's
Python wheel (pyseccomp) runs ldconfig when it is imported, fails without the C library, and is not there for the launcher of
compiler commands. Numbers: asm/unistd_64.h and asm-generic/unistd.h.
Where to look next: `sandbox/enforce.py` (who calls this).
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Sequence

from stitchcuda.sandbox import kernel

_NUMBERS: dict[str, tuple[int | None, int | None]] = {  # x86-64, the common table
    "acct": (163, 89), "add_key": (248, 217), "adjtimex": (159, 171), "bpf": (321, 280), "chroot": (161, 51),
    "clock_adjtime": (305, 266), "clock_settime": (227, 112), "clone": (56, 220), "clone3": (435, 435),
    "create_module": (174, None), "delete_module": (176, 106), "execve": (59, 221), "execveat": (322, 281),
    "fanotify_init": (300, 262), "finit_module": (313, 273), "fork": (57, None), "fsconfig": (431, 431),
    "fsmount": (432, 432), "fsopen": (430, 430), "fspick": (433, 433), "get_kernel_syms": (177, None),
    "init_module": (175, 105), "io_uring_enter": (426, 426), "io_uring_register": (427, 427), "io_uring_setup": (425, 425),
    "ioctl": (16, 29), "ioperm": (173, None), "iopl": (172, None), "kcmp": (312, 272), "kexec_file_load": (320, 294),
    "kexec_load": (246, 104), "keyctl": (250, 219), "kill": (62, 129), "lookup_dcookie": (212, 18),
    "memfd_create": (319, 279), "migrate_pages": (256, 238), "modify_ldt": (154, None), "mount": (165, 40),
    "mount_setattr": (442, 442), "move_mount": (429, 429), "move_pages": (279, 239), "mq_open": (240, 180), "msgget": (68, 186),
    "name_to_handle_at": (303, 264), "nfsservctl": (180, 42), "open_by_handle_at": (304, 265), "open_tree": (428, 428),
    "perf_event_open": (298, 241), "personality": (135, 92), "pidfd_getfd": (438, 438), "pidfd_open": (434, 434),
    "pidfd_send_signal": (424, 424), "pivot_root": (155, 41), "prctl": (157, 167), "prlimit64": (302, 261),
    "process_madvise": (440, 440), "process_mrelease": (448, 448), "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271), "ptrace": (101, 117), "query_module": (178, None), "quotactl": (179, 60),
    "quotactl_fd": (443, 443), "reboot": (169, 142), "request_key": (249, 218), "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240), "semget": (64, 190), "setdomainname": (171, 162), "sethostname": (170, 161),
    "setns": (308, 268), "settimeofday": (164, 170), "shmget": (29, 194), "socket": (41, 198), "swapoff": (168, 225),
    "swapon": (167, 224), "sysfs": (139, None), "syslog": (103, 116), "tgkill": (234, 131), "tkill": (200, 130),
    "umount2": (166, 39), "unshare": (272, 97), "uselib": (134, None), "userfaultfd": (323, 282), "ustat": (136, None),
    "vfork": (58, None), "vhangup": (153, 58),
}  # fmt: skip
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7, "riscv64": 0xC00000F3}  # linux/audit.h
_X32 = 0x40000000                          # the 32-bit ABI of x86-64 lives above this bit

_BY_ARGUMENT = ("clone", "clone3", "execve", "execveat", "fork", "ioctl", "kill", "memfd_create", "prctl", "prlimit64",
                "rt_tgsigqueueinfo", "socket", "tgkill", "tkill", "vfork")  # fmt: skip
_AF_UNIX, _AF_INETS = 1, (2, 10)           # the latter: IPv4, IPv6
_CLONE_THREAD = 0x10000
_CLONE_NEW = 0x7E020080                    # every CLONE_NEW… flag
_TERMINAL_IOCTLS = (0x5412, 0x541C)        # push characters into a terminal's input: TIOCSTI, TIOCLINUX
_PRCTL_ALWAYS = (35, 0x59616D61)           # PR_SET_MM, PR_SET_PTRACER
_PRCTL_ALONE = (1, 4)                      # PR_SET_PDEATHSIG, PR_SET_DUMPABLE: would undo what the supervisor relies on

# linux/bpf_common.h, linux/seccomp.h
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_FILTER_MODE = 2

_Instruction = tuple[int, int, int, int]   # code, jump if true, jump if false, value


def restrict(*, spawn: bool, local: bool, loopback: bool = False) -> None:
    """Puts the filter in force for this process and all it starts. Needs "no new privileges" or CAP_SYS_ADMIN.

    `spawn`: processes may be started. `local`: AF_UNIX sockets may be made, which CUDA's driver needs; in its own network
    namespace and file system a child finds only those to connect to that lie in folders it was given. `loopback`: internet
    sockets may be made too.
    """
    families = (*((_AF_UNIX,) if local else ()), *(_AF_INETS if loopback else ()))
    program = assemble(spawn=spawn, families=families, pid=os.getpid())
    packed = (ctypes.c_uint64 * len(program))(
        *(code | true << 16 | false << 24 | value << 32 for code, true, false, value in program)
    )

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))

    kernel.prctl_pointer(kernel.SECCOMP, _FILTER_MODE, ctypes.byref(Program(len(program), ctypes.addressof(packed))))


def assemble(*, spawn: bool, families: Sequence[int], pid: int) -> list[_Instruction]:
    """Returns the filter's instructions for this processor. Raises `OSError` if it has no table for it."""
    column = kernel.column()
    if column < 0:
        raise OSError(errno.ENOSYS, f"no table of system calls for {os.uname().machine}")
    refused = _ERRNO | errno.EPERM
    code: list[_Instruction] = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, _ARCHITECTURES[os.uname().machine]),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
    ]
    if column == 0:
        code += [(_AT_LEAST, 0, 1, _X32), (_RETURN, 0, 0, _ERRNO | errno.ENOSYS)]
    for name, numbers in _NUMBERS.items():
        number = numbers[column]
        if number is None:
            continue
        answer = _special(name, spawn, families, pid) if name in _BY_ARGUMENT else [(_RETURN, 0, 0, refused)]
        if answer:
            code += [(_EQUAL, 0, len(answer), number), *answer]
    return [*code, (_RETURN, 0, 0, _ALLOW)]


def _special(name: str, spawn: bool, families: Sequence[int], pid: int) -> list[_Instruction]:
    """Returns the instructions for calls whose arguments matter; every path ends in a return. Empty: allowed."""
    allow, refuse = (_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _ERRNO | errno.EPERM)
    if name == "clone3":                   # a filter cannot see its flags; glibc falls back to clone
        return [(_RETURN, 0, 0, _ERRNO | errno.ENOSYS)]
    if name == "memfd_create":             # libraries are loaded from such files too; CUDA's driver needs some
        return [] if spawn or families else [refuse]
    if name == "clone":
        first = (_LOAD, 0, 0, _ARGUMENTS)
        test = (_ANY_BIT, 1, 0, _CLONE_NEW) if spawn else (_ANY_BIT, 0, 1, _CLONE_THREAD)
        return [first, test, allow, refuse]
    if name in ("fork", "vfork", "execve", "execveat"):
        return [] if spawn else [refuse]
    if name == "socket":
        none = (_RETURN, 0, 0, _ERRNO | errno.EACCES)
        tests = [(_EQUAL, len(families) - index, 0, family) for index, family in enumerate(families)]
        return [(_LOAD, 0, 0, _ARGUMENTS), *tests, none, allow] if families else [none]
    if name == "prctl":
        return _refuse_values(0, _PRCTL_ALWAYS if spawn else _PRCTL_ALWAYS + _PRCTL_ALONE)
    if name == "ioctl":
        return _refuse_values(1, _TERMINAL_IOCTLS)
    if name == "prlimit64":                # only for this process
        return [(_LOAD, 0, 0, _ARGUMENTS), (_EQUAL, 1, 0, 0), (_EQUAL, 0, 1, pid), allow, refuse] if not spawn else []
    if spawn:                              # compilers kill their own children; the process namespace contains them
        return []
    if name == "tkill":
        return [refuse]
    return [(_LOAD, 0, 0, _ARGUMENTS), (_EQUAL, 0, 1, pid), allow, refuse]  # kill, tgkill, rt_tgsigqueueinfo


def _refuse_values(argument: int, values: tuple[int, ...]) -> list[_Instruction]:
    tests: list[_Instruction] = [
        (_EQUAL, len(values) - index, 0, value) for index, value in enumerate(values)
    ]
    return [(_LOAD, 0, 0, _ARGUMENTS + 8 * argument), *tests, (_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _ERRNO | errno.EPERM)]
