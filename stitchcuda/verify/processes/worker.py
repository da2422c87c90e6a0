"""Sends requests to a worker process with a time limit, and explains in one sentence how it ended if it did not answer.

A worker answers each request with one message: fields, `{"error": sentence, …}`, or none if it crashed or hung. While a request
runs, a program worker may order builds; they are passed to the builder and do not count against the request's time. The judge
believes nothing that a program worker says, only the tensors that it wrote. Where to look next:
`verify/processes/forkserver.py` (who starts workers), `verify/processes/builder.py` (who gets the orders).
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import signal
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Protocol, TypeVar

from pydantic import ValidationError

from stitchcuda.errors import Unavailable
from stitchcuda.sandbox import limits
from stitchcuda.sandbox.limits import Limits
from stitchcuda.sandbox.removal import remove
from stitchcuda.state import Target
from stitchcuda.verify.messages import out_of_memory
from stitchcuda.verify.messages.build_orders import BuildOrder, BuiltLibrary
from stitchcuda.verify.messages.request import Failed, FailureKind, Request, answer_type, explain_mismatch, read
from stitchcuda.verify.messages.wire import ChannelClosed, ChannelTimeout, ForgedMessage, WireError
from stitchcuda.verify.processes.forkserver import ForkServer

_LOG_TAIL = 16_384                         # characters of a dead worker's output that are searched for a cause
_MOST_REASON = 20_000                      # characters of an error that a worker reports
_MOST_ORDERS = 1000                        # build orders during one request
_MOST_DIFFERENT = 200                      # different build orders of one worker: each may add a library to the cache
_MOST_ORDERED = 64 * 2**20                 # characters of all its different orders together
_MOST_FIELDS = 100                         # of a message or an order: more than any record has


_Answer = TypeVar("_Answer")


# A place in a simulated library: what the simulator found wrong, it found there.
_PLACE = re.compile(r" \[(?P<library>[^\[\]\n]{1,1000})\+0x(?P<offset>[0-9a-f]{1,16})\]")


class Builds(Protocol):
    """What a worker needs of the builder (`verify/processes/builder.py`, which says more). `root`: the program's folder."""

    def build(self, order: BuildOrder, root: Path | None, seconds: float) -> BuiltLibrary: ...

    def find_line(self, order: BuildOrder, root: Path | None, offset: int) -> str: ...


class WorkerFailed(Exception):
    """The worker reported an error, crashed, hung or sent a malformed message. `kind` says which; the text is one sentence.

    For kind "state", as the program worker reports it: `missing` are the names of the reference's state that the program lacks,
    `held` is how many numbers it holds that the reference does not have.
    """

    def __init__(self, kind: FailureKind, reason: str, missing: Iterable[str] = (), held: int = 0) -> None:
        super().__init__(reason)
        self.kind = kind
        self.held = held
        self.missing = frozenset(missing)


class Worker:
    """One worker process with its folders, which go when the `with` block ends or `close` is called.

    `scratch`: the worker may write there. `libraries`: it may read what `grant_library` puts there. `code`: the folder
    of the program that it runs. `builds`: its build orders, and the builder's answers to them, which can be trusted.
    """

    def __init__(
        self,
        forkserver: ForkServer,
        kind: Literal["reference", "program", "builder"],
        root: Path,
        target: Target,
        bounds: Limits,
        *,
        builder: Builds | None = None,
        read: Sequence[Path] = (),
    ) -> None:
        self.scratch = Path(tempfile.mkdtemp(prefix=f"{kind}-", dir=root))
        self.libraries = Path(tempfile.mkdtemp(prefix="libraries-", dir=root))
        self.code: Path | None = None
        self.builds: list[tuple[BuildOrder, BuiltLibrary]] = []
        self._builder = builder
        self._orders: dict[BuildOrder, int] = {}  # the different orders, with their characters
        self._what = f"the {kind}"
        self._bounds = bounds
        self._deadline: float | None = None
        read = (*read, self.libraries)
        self.child = forkserver.spawn(kind, self.scratch, target=target, bounds=bounds, read=read)
        self.pid, self._channel = self.child.pid, self.child.channel

    def expire_in(self, seconds: float) -> None:
        """Limits the time of all further requests together."""
        self._deadline = time.monotonic() + seconds

    def extend(self, seconds: float) -> None:
        """Adds `seconds`, which were spent waiting for others, to the time that all requests together may take."""
        if self._deadline is not None:
            self._deadline += seconds

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Adds the time of the block, which is spent waiting for others, to the time that all requests together may take."""
        started = time.monotonic()
        try:
            yield
        finally:
            self.extend(time.monotonic() - started)

    def ask(self, request: Request[_Answer], *, seconds: float, doing: str) -> _Answer:
        """Sends a request and returns its answer.

        `doing` completes "the program crashed … while", for example "running forward". Raises `WorkerFailed`, after which the
        worker is dead or useless, and `Unavailable` if its supervisor was killed from outside, or the reference's process.
        """
        if self._deadline is not None:
            seconds = min(seconds, max(0.01, self._deadline - time.monotonic()))
        token = secrets.token_hex(16)      # an answer that other code wrote to the channel does not repeat it
        try:
            deadline = time.monotonic() + seconds
            self._channel.send({"do": type(request).__name__, "id": token, **vars(request)}, seconds)
            fields = self._answer(deadline)
            if fields.pop("id", None) != token:
                raise ForgedMessage
            if "error" in fields:
                failed = read(Failed, fields)
                raise WorkerFailed(failed.kind, self.name_line(failed.error[:_MOST_REASON]), failed.missing or (), failed.held)
            return read(answer_type(request), fields)
        except ChannelTimeout:
            self.kill()
            raise WorkerFailed("timeout", f"{self._what} did not finish {doing} within {seconds:.0f} s") from None
        except ForgedMessage:
            self.kill()
            raise WorkerFailed("tampering", f"{self._what} sent an answer of its own making while {doing}") from None
        except (WireError, ValidationError) as error:
            self.kill()
            why = str(error) if isinstance(error, WireError) else explain_mismatch(error)
            raise WorkerFailed("crash", f"{self._what} answered with nonsense while {doing}: {why}") from error
        except ChannelClosed:
            raise self._crashed(doing) from None

    def _answer(self, deadline: float) -> dict[str, Any]:
        """Receives the answer. Build orders that come before it are passed on; their time does not count."""
        building = self._bounds.start_s
        for _ in range(_MOST_ORDERS):
            message = self._channel.receive(max(0.0, deadline - time.monotonic()))
            if len(message) > _MOST_FIELDS:
                raise WireError(f"a message of {len(message)} fields")
            if "build" not in message or self._builder is None:
                return message
            started = time.monotonic()
            if building <= 0:
                raise ChannelTimeout
            built = grant_library(self.libraries, self._build(message["build"], building))
            took = time.monotonic() - started
            deadline, building = deadline + took, building - took
            self.extend(took)
            self._channel.send({"built": built}, max(0.01, deadline - time.monotonic()))
        raise WireError("orders to build without end")

    def _build(self, fields: object, seconds: float) -> BuiltLibrary:
        """Passes an order to the builder, unless it is malformed or the worker has ordered too much already."""
        assert self._builder is not None
        try:
            order = BuildOrder.model_validate(fields if isinstance(fields, dict) and len(fields) <= _MOST_FIELDS else None)
        except ValidationError:
            return BuiltLibrary(failure="the order to build cannot be understood")
        if order not in self._orders:
            size = len(order.model_dump_json())
            if len(self._orders) >= _MOST_DIFFERENT or sum(self._orders.values()) + size > _MOST_ORDERED:
                most = f"{_MOST_DIFFERENT} builds, with sources of {_MOST_ORDERED >> 20} MiB in all"
                return BuiltLibrary(failure=f"a program may order {most}, and no more")
            self._orders[order] = size
        self.builds.append((order, self._builder.build(order, self.code, seconds)))
        return self.builds[-1][1]

    def name_line(self, reason: str) -> str:
        """Returns the reason with the source line of the first place that it names in a simulated library."""
        place = _PLACE.search(reason)
        if place is None or self._builder is None:
            return reason
        name, offset = Path(place["library"]).name, int(place["offset"], 16)
        order = next((order for order, built in self.builds if Path(built.path).name == name), None)
        with self.paused():
            line = self._builder.find_line(order, self.code, offset) if order is not None else ""
        return reason[: place.start()] + (f", at {line}" if line else "") + reason[place.end() :]

    def _crashed(self, doing: str) -> WorkerFailed:
        """Explains why the worker closed its channel, from its exit status, its supervisor's reason and its output."""
        end = self.child.end(2.0)          # it is ending, since its socket is closed; what it started may not be
        code, log = end.code, end.output[-_LOG_TAIL:]
        if end.reason == "lost":
            raise Unavailable(f"the supervisor of {self._what} was killed while {doing}; run the command again")
        if code == -signal.SIGKILL and self._what == "the reference" and end.reason not in _EXCESSES:
            why = "by somebody, or by the system because its memory was full; use smaller inputs, or run the command again"
            raise Unavailable(f"{self._what} was killed (SIGKILL) while {doing}: {why}")
        bound = limits.memory_limit(self._bounds) / 2**30
        if end.reason in _EXCESSES:
            kind: FailureKind = "memory" if end.reason == "memory" else "crash"
            limit = f" (limit {bound:.0f} GiB)" if kind == "memory" else ""
            return WorkerFailed(kind, f"{self._what} {_EXCESSES[end.reason]}{limit} while {doing} and was stopped")
        if out_of_memory.is_out_of_memory(log):
            return WorkerFailed("memory", f"{self._what} ran out of memory (limit {bound:.0f} GiB) while {doing}")
        frames = re.findall(r'File "([^"]+)", line (\d+) in (\w+)', log)
        own = [frame for frame in frames if self.code is not None and Path(frame[0]).is_relative_to(self.code)]
        where = f" ({Path(own[0][0]).name}, line {own[0][1]}, in {own[0][2]})" if own else ""
        printed = [line for line in log.splitlines() if line.strip() and not _FAULT_LINE.match(line)]
        detail = f": {printed[-1].strip()[:300]}" if printed and code != 0 else ""
        how = f"crashed with {limits.signal_name(code)}" if code < 0 else f"ended by itself with {limits.signal_name(code)}"
        return WorkerFailed("crash", f"{self._what} {how} while {doing}{where}{detail}")

    def kill(self) -> None:
        self.child.end()

    def close(self) -> None:
        self.kill()
        self._channel.close()
        remove(self.scratch)
        remove(self.libraries)

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def grant_library(folder: Path, built: BuiltLibrary) -> BuiltLibrary:
    """Returns the builder's answer with its library in `folder`, which a worker can read but not write, so that it sees none
    that was built for other programs. The path there is always the same: under a second one it would be loaded twice."""
    if not built.path or built.shared:
        return built
    library = Path(built.path)
    place = folder / library.name
    if not place.exists():
        try:
            os.link(library, place)
        except OSError:                    # another file system, or one without hard links
            shutil.copyfile(library, place)
    return replace(built, path=str(place))


_FAULT_LINE = re.compile(
    r"\s*(Fatal Python error|Current thread|Thread 0x|File \"|Extension modules|Current C stack|Binary file|<|Stack \(|!!!)"
    r"|.*\^\^\^|[A-Z]+:\d{4}-\d\d-\d\d .*Profiler"  # the last: what torch's profiler logs when it starts
)
_EXCESSES = {
    "memory": "used more memory than it may",
    "disk": "filled more disk than it may",
    "processes": "started more threads and processes than it may",
    "output": "printed more than it may",
}
