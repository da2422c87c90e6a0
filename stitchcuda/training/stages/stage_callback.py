"""Writes the log of a run while TRL trains, marks complete save points, and stops where a loss is no number.

Imported when a stage runs: it needs transformers. It logs before a save point is made, so none is made of weights that a NaN
has reached.
Where to look next: `training/stages/stage_run.py` (the files), `training/stages/training.py` (who runs the trainer).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from stitchcuda.errors import Unavailable
from stitchcuda.state import Digest
from stitchcuda.training.stages.stage_run import LOG, StageRun


class StageCallback(TrainerCallback):
    """`updates_a_step`: how many updates of the weights one step of the stage makes."""

    def __init__(self, folder: StageRun, digest: Digest, updates_a_step: int, tell: Callable[[str], None]) -> None:
        self.folder, self.digest, self.updates_a_step, self.tell = folder, digest, updates_a_step, tell

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, logs: dict[str, Any] | None = None,
        **more: Any,
    ) -> None:  # fmt: skip
        figures = {name: value for name, value in (logs or {}).items() if isinstance(value, int | float)}
        if "loss" not in figures:          # the trainer's last line, of the whole run
            return
        for name in ("loss", "grad_norm"):
            if not math.isfinite(figures.get(name, 0.0)):
                raise Unavailable(f"{name} is {figures[name]} at update {state.global_step}: a smaller learning_rate may help")
        step = math.ceil(state.global_step / self.updates_a_step)
        finite = {name: value for name, value in figures.items() if math.isfinite(value)}
        self.folder.append(LOG, {"update": state.global_step, "step": step, **finite})
        reward = f", reward {figures['reward']:.4g}" if "reward" in figures else ""
        took = f", {figures['step_time']:.1f} s" if "step_time" in figures else ""
        self.tell(f"update {state.global_step} of {state.max_steps}: loss {figures['loss']:.4g}{reward}{took}")

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **more: Any) -> None:
        self.folder.mark_saved(state.global_step, self.digest)
