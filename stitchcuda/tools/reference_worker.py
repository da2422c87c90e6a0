"""Runs the reference, which is trusted: capture, inputs, expected outputs in its own precision and in float64, eager times.

It writes tensors where the judge says and never sees a program. Where to look next: `reference.py` and `truth.py` (what a
reference is and computes), `exam.py` (who asks).
"""

from __future__ import annotations

import contextlib
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from stitchcuda.errors import BadInput
from stitchcuda.state import Precision, Target
from stitchcuda.tools import wire
from stitchcuda.tools.reference import WEIGHT_SEED, Reference, load_reference, run, run64
from stitchcuda.tools.stopwatch import Stopwatch
from stitchcuda.tools.wire import Channel, WireError

_EAGER_CALLS = 20
_RENEWED_BUFFERS = ("running_mean", "running_var")
_RENEWAL = 0.1                             # relative change of a parameter; absolute where it is constant


class ReferenceWorker:
    """One loaded reference."""

    def __init__(self, scratch: Path, target: Target) -> None:
        self._scratch = scratch
        self._target = target
        self._device = "cuda" if target == "cuda" else "cpu"
        self._reference: Reference | None = None
        self._original: dict[str, torch.Tensor] = {}
        self._precision: Precision = "reference"
        self._holds = ""                   # file of the parameters it has now
        self._timed: tuple[tuple[Any, ...], dict[str, Any]] | None = None

    def load(self, message: dict[str, Any]) -> dict[str, Any]:
        """Load and examine it; answer with what a program's constructor needs."""
        self._precision = message["precision"]
        if self._precision == "tf32":
            torch.backends.cuda.matmul.allow_tf32 = True
            torch.backends.cudnn.allow_tf32 = True
        self._reference = reference = load_reference(Path(message["path"]), self._device)
        reference.examine()
        self._original = {name: tensor.detach().clone() for name, tensor in self._state().items()}
        tensors: list[torch.Tensor] = []
        try:
            structure = wire.encode(_constructor_arguments(reference), tensors)
        except WireError as error:
            raise BadInput(f"get_init_inputs() of {reference.path.name} gives {error}, which cannot be passed on.") from error
        wire.write_tensors(Path(message["init"]), tensors)
        return {
            "init_structure": structure,
            "init_seed": WEIGHT_SEED,
            "training": reference.module.training,
            "state_names": list(self._state()),
            "sha": reference.sha,
        }

    def baseline(self, message: dict[str, Any]) -> dict[str, Any]:
        """Capture, the values the graph lifted, versions, and on a GPU the eager time."""
        from stitchcuda.fusion import capture

        reference = self._loaded()
        args, kwargs = reference.inputs(message["seed"])
        traced = capture.trace(reference.module, args, kwargs, observe=True)  # fake strides are not always the real ones
        constants = None
        if traced.constants:
            constants = message["constants"]
            save_file({key: value.detach().cpu().contiguous().clone() for key, value in traced.constants.items()}, constants)
        facts = {"capture": traced.graph.model_dump_json(), "constants": constants, "torch": torch.__version__}
        facts |= {"sha": reference.sha, "device": self._device, "driver": "", "eager_ms": None}
        if self._target == "cuda":
            times = self._times(args, kwargs, _EAGER_CALLS)
            facts |= {"device": torch.cuda.get_device_name(), "eager_ms": sorted(times)[len(times) // 2]}
        return facts

    def renew(self, message: dict[str, Any]) -> dict[str, Any]:
        """Give parameters and running statistics new values, so that ones and zeros cannot be baked in; write them.

        Where the reference does not stay finite with them, it keeps its own, and the answer says so.
        """
        reference = self._loaded()
        self._set(self._original)
        self._holds = ""
        note = ""
        if message["seed"] is not None:
            args, kwargs = reference.inputs(message["seed"])
            before = _finite(run(reference.module, args, kwargs))
            generator = torch.Generator().manual_seed(message["seed"])
            self._set({name: _renewed(name, value, self._names(), generator) for name, value in self._original.items()})
            if _finite(run(reference.module, args, kwargs)) < before:
                self._set(self._original)
                note = "parameters were not varied: the reference does not stay finite with others"
        wire.write_tensors(Path(message["state"]), list(self._state().values()))
        self._holds = message["state"]
        return {"note": note}

    def expect(self, message: dict[str, Any]) -> dict[str, Any]:
        """Inputs for one secret seed, and what the reference makes of them in its own precision and in float64."""
        reference = self._loaded()
        if message["state"] != self._holds:
            self._set(dict(zip(self._state(), wire.read_tensors(Path(message["state"]), device=self._device), strict=True)))
            self._holds = message["state"]
        args, kwargs = reference.inputs(message["seed"])
        tensors: list[torch.Tensor] = []
        try:
            structure = wire.encode((args, kwargs), tensors)
        except WireError as error:
            raise BadInput(f"get_inputs() of {reference.path.name} gives {error}, which cannot be passed on.") from error
        wire.write_tensors(Path(message["inputs"]), tensors)
        with self._as_asked():
            expected = run(reference.module, args, kwargs)
        if self._precision in ("fp16", "bf16"):
            plain = run(reference.module, args, kwargs)
            expected = {name: value.to(plain[name].dtype) for name, value in expected.items()}
        exact = run64(reference.module, args, kwargs)
        names = list(expected)
        if list(exact) != names:
            raise BadInput(f"The reference {reference.path.name} returns other outputs in float64: {', '.join(exact)}.")
        wire.write_tensors(Path(message["expected"]), [expected[name] for name in names])
        wire.write_tensors(Path(message["exact"]), [exact[name] for name in names])
        return {"structure": structure, "names": names}

    def time(self, message: dict[str, Any]) -> dict[str, Any]:
        """A block of timed calls (GPU only)."""
        if self._timed is None:
            self._timed = self._loaded().inputs(message["seed"])
        args, kwargs = self._timed
        with torch.no_grad(), self._as_asked():
            module = self._loaded().module
            return Stopwatch.shared().block(lambda: module(*args, **kwargs), message["calls"])

    def _times(self, args: tuple[Any, ...], kwargs: dict[str, Any], calls: int) -> list[float]:
        module = self._loaded().module
        with torch.no_grad(), self._as_asked():
            for _ in range(3):
                module(*args, **kwargs)
            times: list[float] = Stopwatch.shared().block(lambda: module(*args, **kwargs), calls)["events_ms"]
        self._set(self._original)
        self._holds = ""
        return times

    def _loaded(self) -> Reference:
        if self._reference is None:
            raise RuntimeError("no reference is loaded")
        return self._reference

    def _names(self) -> set[str]:
        return {name for name, _ in self._loaded().module.named_parameters(remove_duplicate=False)}

    def _state(self) -> dict[str, torch.Tensor]:
        state = self._loaded().module.state_dict()
        return {name: value for name, value in state.items() if isinstance(value, torch.Tensor)}

    def _set(self, values: dict[str, torch.Tensor]) -> None:
        with torch.no_grad():
            for name, tensor in self._state().items():
                tensor.copy_(values[name])

    @contextlib.contextmanager
    def _as_asked(self) -> Iterator[None]:
        """The precision that was asked for: the reference's own error sets the bound, so it runs as the user would run it."""
        if self._precision in ("fp16", "bf16"):
            dtype = torch.float16 if self._precision == "fp16" else torch.bfloat16
            with torch.autocast(self._device, dtype=dtype):
                yield
        else:
            yield


def main(channel: Channel, scratch: Path, target: Target) -> None:
    """Answer the judge until it hangs up."""
    worker = ReferenceWorker(scratch, target)
    handlers = {
        "load": worker.load,
        "baseline": worker.baseline,
        "renew": worker.renew,
        "expect": worker.expect,
        "time": worker.time,
    }
    while True:
        message = channel.receive()
        try:
            answer = handlers[message["do"]](message)
        except BadInput as error:
            answer = {"error": str(error), "kind": "bad_input"}
        except (MemoryError, torch.OutOfMemoryError) as error:
            answer = {"error": f"The reference does not fit into memory: {str(error).splitlines()[:1]}.", "kind": "bad_input"}
        except Exception:
            answer = {"error": traceback.format_exc(), "kind": "error"}
        channel.send(answer)


def _constructor_arguments(reference: Reference) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What the reference's own constructor was called with; a pickled module's is unknown and taken as empty."""
    for module in list(sys.modules.values()):
        if getattr(module, "__file__", None) == str(reference.path) and hasattr(module, "get_init_inputs"):
            given = module.get_init_inputs()
            if isinstance(given, dict):
                return (), dict(given)
            if len(given) == 2 and isinstance(given[0], tuple | list) and isinstance(given[1], dict):
                return tuple(given[0]), dict(given[1])
            return tuple(given), {}
    return (), {}


def _renewed(name: str, value: torch.Tensor, parameters: set[str], generator: torch.Generator) -> torch.Tensor:
    learnt = name in parameters or name.rsplit(".", 1)[-1] in _RENEWED_BUFFERS
    if not learnt or not value.dtype.is_floating_point or value.numel() == 0:
        return value
    noise = torch.randn(value.shape, generator=generator, dtype=torch.float32).to(value.device)
    wide = value.float()
    constant = bool((wide == wide.flatten()[0]).all())
    renewed = wide + _RENEWAL * noise.clamp(-3, 3) * (1.0 if constant else wide)
    return renewed.to(value.dtype)


def _finite(outputs: dict[str, torch.Tensor]) -> int:
    return sum(int(torch.isfinite(value).sum()) for value in outputs.values())
