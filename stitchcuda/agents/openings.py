"""Opens workbenches for a server of tools, each in a thread, so that a caller may stop waiting and come back.

Whoever asks for a workbench that is being opened waits for the same thread. What a session is opened with (device, policy,
budgets) is the user's choice, and the same for all of a server's workbenches.
Where to look next: `agents/background.py` (what opens them), `agents/mcp_server.py` (who asks).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio

from stitchcuda.errors import BadInput

if TYPE_CHECKING:
    from stitchcuda.agents.background import OpenWorkbench

_POLL_S = 0.1


@dataclass
class _Opening:
    reference: Path
    line: str = ""                         # of progress, the last one
    done: Future[OpenWorkbench] = field(default_factory=Future)


class Openings:
    """`workspace`, `device` and `settings` are those of `open_workbench`."""

    def __init__(self, *, workspace: Path | None, device: str, settings: Mapping[str, Any]) -> None:
        self._workspace, self._device, self._settings = workspace, device, settings
        self._open: dict[Path, _Opening] = {}

    async def open(self, reference: Path, folder: Path, tell: Callable[[str], None]) -> OpenWorkbench:
        """Opens a workbench and returns when its commands are answered. `tell` is given lines of progress. It may be cancelled:
        the workbench is opened all the same. Raises `StitchError`."""
        opening = self._open.get(folder)
        if opening is None or opening.done.done():
            opening = self._open[folder] = _Opening(reference)
            threading.Thread(target=self._carry_out, args=(opening, folder), name="opening", daemon=True).start()
        elif opening.reference != reference:
            raise BadInput(f"{folder} is being opened for {opening.reference}: give another folder")
        while not opening.done.done():
            tell(opening.line)
            await anyio.sleep(_POLL_S)
        return opening.done.result()

    def _carry_out(self, opening: _Opening, folder: Path) -> None:
        def tell(line: str) -> None:
            opening.line = line

        try:
            from stitchcuda.agents.background import open_workbench  # takes seconds to import

            opening.done.set_result(open_workbench(
                opening.reference, folder, workspace=self._workspace, device=self._device, settings=self._settings, tell=tell
            ))  # fmt: skip
        except BaseException as error:     # it is raised where the opening is waited for
            opening.done.set_exception(error)
