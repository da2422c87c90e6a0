"""The judge's handle on one worker: ask, wait with a limit, and say in one sentence how it ended when it did not answer.

A worker answers every request with one message: `{"ok": …}`, `{"error": sentence, …}` or nothing, when it crashed or hung.
Nothing a program worker says is believed beyond the tensors it wrote. Where to look next: `verify/processes/forkserver.py`,
`verify/judge/judge.py`.
"""

from __future__ import annotations

import json
import re
import secrets
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from stitchcuda.errors import Unavailable
from stitchcuda.sandbox import limits
from stitchcuda.sandbox.limits import Limits
from stitchcuda.sandbox.removal import remove
from stitchcuda.verify.messages import build_orders, out_of_memory
from stitchcuda.verify.messages.wire import ChannelClosed, ChannelTimeout, ForgedMessage, WireError
from stitchcuda.verify.processes.file_grants import grant_library
from stitchcuda.verify.processes.forkserver import ForkServer

_LOG_TAIL = 16_384
_MOST_SAID = 20_000                         # characters of a reason; a compiler's log is longer only in its middle
_MOST_ORDERS = 1000                        # to build, while one question is answered
_MOST_DIFFERENT = 200                      # of one worker: each may leave something in the cache
_MOST_ORDERED = 64 * 2**20                 # characters of these


Kind = Literal["error", "crash", "timeout", "memory", "refused", "unwatched", "bad_input", "state", "tampering"]


OnBuild = Callable[[dict[str, Any], Path | None, float], dict[str, Any]]
"""(order of a program worker, its code's folder, seconds) → the builder's answer."""


class WorkerFailed(Exception):
    """The worker answered with an error, crashed, hung or sent nonsense. `kind` says which; the text is one sentence.

    `missing`: of kind "state", what of the reference's state the program has not, in its own words; `held`: how many numbers it
    has that are nothing of the reference's.
    """

    def __init__(self, kind: Kind, reason: str, missing: object = (), held: object = 0) -> None:
        super().__init__(reason)
        self.kind = kind
        self.held = held if type(held) is int else 0
        self.missing = frozenset(map(str, missing)) if isinstance(missing, list) else frozenset()


class Worker:
    """One live worker process with its scratch folder; a context manager that leaves neither behind."""

    def __init__(
        self,
        nursery: ForkServer,
        kind: Literal["reference", "program", "builder"],
        root: Path,
        target: str,
        bounds: Limits,
        *,
        on_build: OnBuild | None = None,
        read: Sequence[Path] = (),
    ) -> None:
        self.scratch = Path(tempfile.mkdtemp(prefix=f"{kind}-", dir=root))
        self.desk = Path(tempfile.mkdtemp(prefix="desk-", dir=root))  # see verify/processes/file_grants.py
        self.shelf = Path(tempfile.mkdtemp(prefix="shelf-", dir=root))  # libraries that were built for it, and no others
        self.code: Path | None = None      # folder of the code that it runs; a crash is told by the line in there
        self.ordered: list[dict[str, Any]] = []
        self.built: list[dict[str, Any]] = []  # what the builder made of each, in its own words: these can be believed
        self._on_build = on_build
        self._orders: dict[str, int] = {}  # digest: characters
        self._what = f"the {kind}"
        self._bounds = bounds
        self._deadline: float | None = None
        self.child = nursery.spawn(kind, self.scratch, target=target, bounds=bounds, read=(*read, self.desk, self.shelf))
        self.pid, self._channel = self.child.pid, self.child.channel

    def expire_in(self, seconds: float) -> None:
        """From now on all requests together may take this long."""
        self._deadline = time.monotonic() + seconds

    def extend(self, seconds: float) -> None:
        """Others were waited for: that is none of its time."""
        if self._deadline is not None:
            self._deadline += seconds

    def ask(self, do: str, *, seconds: float, doing: str, **fields: Any) -> dict[str, Any]:
        """Send a request and return the answer's fields. Raises `WorkerFailed`, after which the worker is dead or useless, and
        `Unavailable` when it is gone for no reason of its own.

        `doing` completes "the program crashed … while", such as "running forward".
        """
        if self._deadline is not None:
            seconds = min(seconds, max(0.01, self._deadline - time.monotonic()))
        token = secrets.token_hex(16)      # of this question: what is written to the channel in the worker's place lacks it
        try:
            deadline = time.monotonic() + seconds
            self._channel.send({"do": do, "id": token, **fields}, seconds)
            answer = self._answer(deadline)
        except ChannelTimeout:
            self.kill()
            raise WorkerFailed("timeout", f"{self._what} did not finish {doing} within {seconds:.0f} s") from None
        except ForgedMessage:
            self.kill()
            raise self._forged(doing) from None
        except WireError as error:
            self.kill()
            raise WorkerFailed("crash", f"{self._what} answered with nonsense while {doing}: {error}") from error
        except ChannelClosed:
            raise self._crashed(doing) from None
        if answer.pop("id", None) != token:
            self.kill()
            raise self._forged(doing)
        if "error" in answer:
            said = str(answer["error"])[:_MOST_SAID]
            raise WorkerFailed(answer.get("kind", "error"), said, answer.get("missing"), answer.get("held"))
        return answer

    def _answer(self, deadline: float) -> dict[str, Any]:
        """The worker's next message that is no order to build something; orders are passed on and take no time of its own."""
        building = self._bounds.start_s
        for _ in range(_MOST_ORDERS):
            message = self._channel.receive(max(0.0, deadline - time.monotonic()))
            if "build" not in message or self._on_build is None:
                return message
            order = message["build"] if isinstance(message["build"], dict) else {}
            started = time.monotonic()
            if building <= 0:
                raise ChannelTimeout
            self.ordered.append(order)
            self.built.append(self._made(order, building))
            took = time.monotonic() - started
            deadline, building = deadline + took, building - took
            self._channel.send({"built": self._lent(self.built[-1])}, max(0.01, deadline - time.monotonic()))
        raise WireError("orders to build without end")

    def _made(self, order: dict[str, Any], seconds: float) -> dict[str, Any]:
        assert self._on_build is not None
        digest, size = build_orders.digest(order), len(json.dumps(order))
        if digest not in self._orders:
            if len(self._orders) >= _MOST_DIFFERENT or sum(self._orders.values()) + size > _MOST_ORDERED:
                most = f"{_MOST_DIFFERENT} builds, with sources of {_MOST_ORDERED >> 20} MiB in all"
                return {"error": f"a program may order {most}, and no more", "kind": "build"}
            self._orders[digest] = size
        return self._on_build(order, self.code, seconds)

    def _lent(self, built: dict[str, Any]) -> dict[str, Any]:
        """The builder's answer with a path that this worker can read, until it is closed."""
        if "path" not in built or built.get("shared"):
            return built
        return built | {"path": str(grant_library(self.shelf, Path(built["path"])))}

    def _forged(self, doing: str) -> WorkerFailed:
        return WorkerFailed("tampering", f"{self._what} sent an answer of its own making while {doing}")

    def _crashed(self, doing: str) -> WorkerFailed:
        end = self.child.end(2.0)          # its socket is closed, so it is dying; what it started is not
        code, log = end.code, end.output[-_LOG_TAIL:]
        if end.reason == "lost":
            raise Unavailable(f"the supervisor of {self._what} was killed while {doing}; run the command again")
        bound = limits.memory_limit(self._bounds) / 2**30
        if end.reason in _EXCESSES:
            kind: Kind = "memory" if end.reason == "memory" else "crash"
            limit = f" (limit {bound:.0f} GiB)" if kind == "memory" else ""
            return WorkerFailed(kind, f"{self._what} {_EXCESSES[end.reason]}{limit} while {doing} and was stopped")
        if out_of_memory.is_out_of_memory(log):
            return WorkerFailed("memory", f"{self._what} ran out of memory (limit {bound:.0f} GiB) while {doing}")
        frames = re.findall(r'File "([^"]+)", line (\d+) in (\w+)', log)
        own = [frame for frame in frames if self.code is not None and Path(frame[0]).is_relative_to(self.code)]
        where = f" ({Path(own[0][0]).name}, line {own[0][1]}, in {own[0][2]})" if own else ""
        said = [line for line in log.splitlines() if line.strip() and not _FAULT_LINE.match(line)]
        detail = f": {said[-1].strip()[:300]}" if said and code != 0 else ""
        how = f"crashed with {limits.signal_name(code)}" if code < 0 else f"ended by itself with {limits.signal_name(code)}"
        return WorkerFailed("crash", f"{self._what} {how} while {doing}{where}{detail}")

    def kill(self) -> None:
        self.child.end()

    def close(self) -> None:
        self.kill()
        self._channel.close()
        remove(self.scratch)
        remove(self.desk)
        remove(self.shelf)

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


_FAULT_LINE = re.compile(
    r"\s*(Fatal Python error|Current thread|Thread 0x|File \"|Extension modules|Current C stack|Binary file|<|Stack \(|!!!)"
    r"|.*\^\^\^|[A-Z]+:\d{4}-\d\d-\d\d .*Profiler"  # the last: torch's profiler, which says that it is there
)
_EXCESSES = {
    "memory": "used more memory than it may",
    "disk": "filled more disk than it may",
    "processes": "started more threads and processes than it may",
    "output": "printed more than it may",
}
