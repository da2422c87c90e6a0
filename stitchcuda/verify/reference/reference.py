"""Loads the reference from a KernelBench-style `.py` file or a cloudpickle `.pkl`, and draws its inputs for any seed.

It runs in worker processes only, because loading a reference executes its code. Whatever is wrong with a reference is raised as
a `BadInput` with one sentence. A reference is refused when two calls on the same inputs, with torch's generators in the same
state, differ by more than NOISE (relative norm), or when a call changes what a later one computes. It captures no graph and
judges no program.
Where to look next: `verify/reference/float64_truth.py` (calling it, also in float64), `compiler/capture/capture.py` (capture),
`verify/reference/reference_worker.py` (the process).
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import importlib.util
import random
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from stitchcuda import remedies
from stitchcuda.errors import BadInput
from stitchcuda.verify.inputs.draw_seeds import seed_generators
from stitchcuda.verify.inputs.integer_values import SMALLEST, holds_whole_numbers
from stitchcuda.verify.inputs.reference_requests import CallHabits
from stitchcuda.verify.inputs.value_domain import rows_sum_to_one
from stitchcuda.verify.inputs.value_order import is_ordered
from stitchcuda.verify.inputs.variants import is_finite
from stitchcuda.verify.integrity.call_effects import argument_names
from stitchcuda.verify.messages import out_of_memory
from stitchcuda.verify.messages.large_parameters import construct
from stitchcuda.verify.messages.shared_tensors import extent, is_dense, replace_tensors
from stitchcuda.verify.reference.argument_mismatch import explain_mismatch
from stitchcuda.verify.reference.float64_truth import run, second_run
from stitchcuda.verify.reference.load_timeout import time_limit
from stitchcuda.verify.reference.random_draws import RandomDraws, generator_states, same_states

WEIGHT_SEED = 20260302
"""Seeds the reference's code and constructor, so that every process builds the same weights."""
_MUCH = 2**28                              # bytes of inputs
_DRAW_SEED = 20260303                      # of torch's generators before each call of `Reference.examine`
NOISE = 1e-2
"""Relative difference (Frobenius norm) of two runs on equal inputs up to which they differ by summation order (atomics) only;
more is taken for random numbers."""

_NO_GPU = (
    '; there is no GPU here: remove .cuda() and device="cuda" (inputs and Model are moved to the GPU where there is one; in '
    "forward, use an input's device)"
)
_REMEDIES = {
    **dict.fromkeys(("not compiled with CUDA", "Found no NVIDIA driver", "No CUDA GPUs are available"), _NO_GPU),
    "to be on the same device": "; keep constants of Model with register_buffer, which moves with it, or use an input's device",
}
"""What to do, by a part of torch's message."""

Inputs = tuple[tuple[Any, ...], dict[str, Any]]


@dataclass
class Reference:
    """A loaded reference. `module` is in the mode it was constructed in and on `device`, its parameters without gradients.

    `draws`: the operators with which a call draws from torch's generators, as far as `examine` saw; () before it is called.
    `habits`: what else a call does, likewise.
    """

    module: nn.Module
    path: Path
    source: str  # the file's text; for a pickle what it holds, in words
    sha: str  # SHA-256 of the file
    device: torch.device
    make_inputs: Callable[[int], Inputs]
    init: Inputs = ((), {})  # what the constructor was called with; unknown for a pickle
    seconds: float = 0.0  # time limit for a call of get_inputs(); 0: none
    draws: tuple[str, ...] = ()
    drawn_on_device: bool | None = None  # whether get_inputs() draws on the GPU; None: not called yet
    habits: CallHabits = dataclasses.field(default_factory=CallHabits)

    def inputs(self, seed: int) -> Inputs:
        """Returns (args, kwargs) for `seed`, on the reference's device, without gradients.

        A file's `get_inputs()` runs after seeding torch, numpy and random. A pickle's inputs keep shape, dtype and strides of
        its example: normal values for floats with any values, the example's own values in another order for others, and as
        they are where the order has a meaning; or they come from its function `make_inputs`, likewise seeded. Raises
        `BadInput` where `get_inputs()` raises, takes longer than `seconds`, or returns tensors that are not dense. If it gives
        much, a GPU is torch's default device meanwhile, where that gives the same shapes and dtypes: the CPU needs seconds to
        draw a gigabyte.
        """
        with time_limit(self.seconds, f"get_inputs() of {self.path.name}", self.path):
            args, kwargs = self._draw(seed)
        if not all(is_dense(value) for value in pytree.tree_leaves((args, kwargs))):
            raise BadInput(f"The inputs of {self.path.name} hold a sparse, nested or quantised tensor: give dense ones.")
        return replace_tensors((args, kwargs), lambda tensor: tensor.detach().to(self.device))  # type: ignore[no-any-return]

    def _draw(self, seed: int) -> Inputs:
        if self.drawn_on_device is None:
            self.drawn_on_device = self.device.type == "cuda" and self._draws_alike_on_device(seed)
        with self.device if self.drawn_on_device else contextlib.nullcontext():
            return self.make_inputs(seed)

    def _draws_alike_on_device(self, seed: int) -> bool:
        """Whether get_inputs() gives much, with the same shapes and dtypes where the GPU is torch's default device. On the
        meta device nothing is drawn; a function that cannot run there is called on the CPU."""
        try:
            with torch.device("meta"):
                layouts = _layouts(self.make_inputs(seed))
        except BadInput:
            layouts = _layouts(self.make_inputs(seed))
        if sum(size for *_, size in layouts) < _MUCH:
            return False
        with contextlib.suppress(BadInput), self.device:
            return _layouts(self.make_inputs(seed)) == layouts
        return False

    def examine(self, seed: int = 0) -> dict[str, Tensor]:
        """Runs the reference and returns its named outputs, or says in a `BadInput` why it cannot be judged: it raises, it
        returns something else than tensors, nothing but empty tensors, or other results for the same inputs.

        Single tensors without elements are allowed, as inputs and as outputs. What is drawn from torch's generators is the
        same in each call.
        """
        args, kwargs = self.inputs(seed)
        _seed(1)
        before = generator_states()
        first = self._call(args, kwargs, 1)
        if not same_states(before, generator_states()):
            drawn = RandomDraws(_DRAW_SEED)
            _seed(1)
            with self.explained(args, kwargs), drawn.recorded():
                recorded = run(self.module, args, kwargs)
            self.draws = tuple(dict.fromkeys(drawn.names))
            first = recorded if self.draws else first
        if all(tensor.numel() == 0 for tensor in first.values()):
            raise BadInput(f"The reference {self.path.name} returns only empty tensors: there is nothing to compute.")
        second = self._call(args, kwargs, 2)
        if not _alike(first, second, exact=True):
            repeatable = _alike(first, self._call(args, kwargs, 1), exact=True)
            if repeatable or not _alike(first, second, exact=False):
                raise BadInput(
                    f"The reference {self.path.name} gives different results for the same inputs: it draws random numbers with "
                    "Python's random, numpy or a generator of its own, reads a clock, or uses memory that nothing wrote. Draw "
                    "with torch's own generator (torch.randn, dropout), or take such values as inputs."
                )
        others = self.inputs(seed + 1)
        _seed(1)
        with self.explained(args, kwargs):
            again, habits = second_run(self.module, others, (args, kwargs), lambda: self._seed_call(1))
        if not _alike(first, again, exact=False):
            raise BadInput(
                f"The reference {self.path.name} gives other results on a second call: it keeps state in an attribute or a "
                "global that is neither a parameter nor a buffer. Use register_buffer, or compute it anew in each call."
            )
        forward = getattr(self.module, "forward", None)
        self.habits = dataclasses.replace(habits, arguments=tuple(argument_names(forward)))
        return first

    def _seed_call(self, seed: int) -> None:
        """Seeds `random`, numpy and torch with `seed`; torch always alike where the reference is known to draw with it."""
        _seed(seed)
        if self.draws:
            seed_generators(_DRAW_SEED)

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any], seed: int) -> dict[str, Tensor]:
        self._seed_call(seed)
        with self.explained(args, kwargs):
            return run(self.module, args, kwargs)

    @contextlib.contextmanager
    def explained(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[None]:
        """Raises `BadInput`, with one sentence, for an exception in the block, which calls forward with these arguments."""
        try:
            yield
        except BadInput:
            raise
        except Exception as error:
            source = "get_inputs()" if self.path.suffix == ".py" else f"the pickle {self.path.name}"
            forward = getattr(self.module, "forward", None)
            mismatch = ""
            if isinstance(error, TypeError) and forward:
                mismatch = explain_mismatch((args, kwargs), source, forward, "forward", self.path)
            problem = mismatch or f"The reference's forward raises {describe_error(self.path, error)}"
            raise BadInput(f"{problem}.") from error


def load_reference(path: Path | str, device: torch.device | str = "cpu", *, seconds: float = 0.0) -> Reference:
    """Loads a reference without running its forward (`Reference.examine` does). Raises `BadInput` with one sentence.

    `seconds`: time limit for loading, and later for each call of `get_inputs()`; 0 sets none.
    """
    path = Path(path)
    if path.is_dir():
        raise BadInput(f"{path} is a folder: give the reference's file, with Model, get_inputs and get_init_inputs.")
    if not path.is_file():
        lacks = f"{path} is no regular file" if path.exists() else f"There is no reference at {path}"
        raise BadInput(f"{lacks}: give a .py file with Model, get_inputs and get_init_inputs.")
    device = torch.device(device)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BadInput(f"The reference {path} cannot be read ({error.strerror}): give a file that you may read.") from error
    init: Inputs = ((), {})
    if path.suffix == ".py":
        source = _decoded(path, data)
        with time_limit(seconds, f"Importing {path.name} and constructing its Model", path):
            module, make_inputs, init = _from_source(path, source, device)
    elif path.suffix == ".pkl":
        source = f"# {path.name}: a pickled module with example inputs"
        with time_limit(seconds, f"Reading {path.name}", path):
            module, make_inputs = _from_pickle(path, data)
    else:
        raise BadInput(f"{path.name} is neither a .py file nor a .pkl written with cloudpickle.")
    if not all(map(is_dense, (*module.parameters(), *module.buffers()))):
        raise BadInput(f"Model in {path.name} holds a sparse, nested or quantised parameter or buffer: keep dense ones.")
    module = module.to(device).requires_grad_(False)
    return Reference(module, path, source, hashlib.sha256(data).hexdigest(), device, make_inputs, init, seconds)


def _layouts(given: Inputs) -> list[tuple[torch.Size, torch.dtype, tuple[int, ...], int]]:
    """(shape, dtype, strides, bytes) of each tensor among the arguments."""
    tensors = [leaf for leaf in pytree.tree_leaves(given) if isinstance(leaf, Tensor) and is_dense(leaf)]
    return [(tensor.shape, tensor.dtype, tensor.stride(), tensor.nbytes) for tensor in tensors]


def _decoded(path: Path, data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadInput(f"{path.name} is not UTF-8 text (byte {error.start}): save it as UTF-8.") from error


def _from_source(path: Path, source: str, device: torch.device) -> tuple[nn.Module, Callable[[int], Inputs], Inputs]:
    code = _execute(path, source)
    model = getattr(code, "Model", None)
    if not (isinstance(model, type) and issubclass(model, nn.Module)):
        raise BadInput(f"{path.name} defines no class Model that is a torch.nn.Module: name the module to compute Model.")
    get_inputs = getattr(code, "get_inputs", None)
    if not callable(get_inputs):
        raise BadInput(f"{path.name} defines no function get_inputs(): add one that returns the list of forward's arguments.")
    get_init_inputs = getattr(code, "get_init_inputs", list)
    _seed(WEIGHT_SEED)
    try:
        args, kwargs = _arguments(get_init_inputs(), path, "get_init_inputs")
    except BadInput:
        raise
    except Exception as error:
        raise BadInput(f"get_init_inputs() raises {describe_error(path, error)}.") from error
    init: Inputs = replace_tensors((args, kwargs), lambda tensor: tensor.detach().clone())  # a constructor may write into them
    _seed(WEIGHT_SEED)
    try:
        module = construct(lambda: model(*args, **kwargs), WEIGHT_SEED, device)
    except Exception as error:
        giver = "get_init_inputs()" if hasattr(code, "get_init_inputs") else ""
        mismatch = ""
        if isinstance(error, TypeError):
            mismatch = explain_mismatch((args, kwargs), giver, model, "Model.__init__", path)
        raise BadInput(f"{mismatch or f'The constructor of Model raises {describe_error(path, error)}'}.") from error

    return module, _seeded(get_inputs, path, "get_inputs"), init


def _seeded(make: Callable[[], Any], path: Path, function: str) -> Callable[[int], Inputs]:
    """Returns a function that seeds torch, numpy and random, and calls the user's function named `function`."""

    def make_inputs(seed: int) -> Inputs:
        _seed(seed)
        try:
            return _arguments(make(), path, function)
        except BadInput:
            raise
        except Exception as error:
            raise BadInput(f"{function}() raises {describe_error(path, error)}.") from error

    return make_inputs


def _execute(path: Path, source: str) -> ModuleType:
    try:
        compiled = compile(source, str(path), "exec")
    except (SyntaxError, ValueError) as error:
        line = f" in line {error.lineno}" if isinstance(error, SyntaxError) else ""
        raise BadInput(f"{path.name} is not valid Python{line}: {getattr(error, 'msg', error)}.") from error
    name = f"reference_{hashlib.sha256(source.encode()).hexdigest()[:12]}"
    module = ModuleType(name)
    module.__file__ = str(path)
    module.__spec__ = importlib.util.spec_from_file_location(name, path)
    sys.modules[name] = module  # dataclasses and pickling inside the reference look it up
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.append(folder)
    _seed(WEIGHT_SEED)
    try:
        exec(compiled, module.__dict__)
    except ImportError as error:
        raise BadInput(f"Importing {path.name} raises {describe_error(path, error)}; {_one_file(error)}.") from error
    except (Exception, SystemExit) as error:
        raise BadInput(f"Importing {path.name} raises {describe_error(path, error)}.") from error
    return module


def _one_file(error: ImportError) -> str:
    """What to do about a reference that imports from files which are not stored with it."""
    named = " and import from it by its name" if "relative import" in str(error) else ""
    return (
        "a reference is stored as one file: move what it imports from files of yours into it, or, if they are a package with "
        f"a pyproject.toml, install that ({remedies.install('-e', 'FOLDER')}){named}"
    )


def _arguments(given: Any, path: Path, function: str) -> Inputs:
    """Returns (args, kwargs) from what `get_inputs()` or `get_init_inputs()` returned: a tensor, a dict, a list or tuple of
    arguments, or a pair ([args], {kwargs})."""
    if isinstance(given, Tensor):
        return (given,), {}
    if isinstance(given, dict):
        return (), dict(given)
    if isinstance(given, tuple | list):
        if len(given) == 2 and isinstance(given[0], tuple | list) and isinstance(given[1], dict):
            return tuple(given[0]), dict(given[1])
        return tuple(given), {}
    raise BadInput(f"{function}() in {path.name} returns an object of type {type(given).__name__}: return a list.")


def _from_pickle(path: Path, data: bytes) -> tuple[nn.Module, Callable[[int], Inputs]]:
    import cloudpickle

    try:
        held = cloudpickle.loads(data)
    except Exception as error:
        raise BadInput(f"{path.name} cannot be unpickled: {type(error).__name__}: {error}.") from error
    if not isinstance(held, dict) or not isinstance(held.get("module"), nn.Module):
        raise BadInput(f'{path.name} holds no {{"module": nn.Module, "args": tuple, "kwargs": dict}}.')
    if callable(held.get("make_inputs")):
        return held["module"], _seeded(held["make_inputs"], path, "make_inputs")
    args, kwargs = tuple(held.get("args", ())), dict(held.get("kwargs", {}))

    def make_inputs(seed: int) -> Inputs:
        _seed(seed)
        return replace_tensors((args, kwargs), _draw_like)  # type: ignore[no-any-return]

    return held["module"], make_inputs


def _draw_like(example: Tensor) -> Tensor:
    """Returns other values in the same layout, drawn from torch's global generator on the CPU: normal ones of the example's
    mean and standard deviation, if its values have both signs, else its own in another order. What is sorted, infinite in
    places or sums to one in each row stays as it is."""
    shape, strides = example.shape, example.stride()
    span = extent(example)
    own = example.detach().cpu()
    if own.numel() == 0 or _has_order(own):
        return example.detach().clone()
    if own.is_complex():
        return torch.randn(span, dtype=torch.complex128).to(own.dtype).as_strided(shape, strides)
    wide = own.double()
    if own.is_floating_point() and bool((wide < 0).any()) and not holds_whole_numbers(own):
        spread, mean = (wide.std() if own.numel() > 1 else wide.abs()), wide.mean()
        return (torch.randn(span, dtype=torch.float64) * spread + mean).to(own.dtype).as_strided(shape, strides)
    values = own.flatten()
    if span < own.numel():  # elements share memory, as in an expanded tensor: draw a value for each place in memory
        return values[torch.randint(own.numel(), (span,))].as_strided(shape, strides)
    return own.new_zeros(span).as_strided(shape, strides).copy_(values[torch.randperm(own.numel())].reshape(shape))


def _has_order(own: Tensor) -> bool:
    """Whether values lose their meaning in another order: sorted, rows of probabilities, or infinite in places."""
    if own.is_floating_point() and not is_finite(own):
        return True
    return own.numel() >= SMALLEST and (is_ordered(own) or rows_sum_to_one(own))


def _seed(seed: int) -> None:
    torch.manual_seed(seed)
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed % 2**32)


def _alike(first: dict[str, Tensor], second: dict[str, Tensor], *, exact: bool) -> bool:
    """Whether two calls gave the same outputs, NaN being equal to NaN. Not `exact`: floats may differ by NOISE."""
    if first.keys() != second.keys():
        return False
    for name, left in first.items():
        right = second[name]
        if left.shape != right.shape or left.dtype != right.dtype:
            return False
        if not left.dtype.is_floating_point and not left.dtype.is_complex:
            if not torch.equal(left, right):
                return False
            continue
        if left.itemsize == 1:             # fp8, which few operators take
            left, right = left.float(), right.float()
        if not torch.equal(left.isnan(), right.isnan()):
            return False
        a, b = left.nan_to_num(), right.nan_to_num()
        bound = 0.0 if exact else NOISE
        if not torch.equal(a, b) and float((a - b).abs().double().norm()) > bound * float(a.abs().double().norm()):
            return False
    return True


def describe_error(path: Path, error: BaseException) -> str:
    """Returns an exception in a few words, with the line of the reference `path` that it came from, such as "ValueError: bad
    size (line 9 of model.py)"."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    where = f" (line {lines[-1]} of {path.name})" if lines else ""
    if lack := out_of_memory.describe_request(error):
        return f"MemoryError: {lack}{where}"
    message = " ".join(str(error).split())[:300].rstrip(".")
    remedy = next((remedy for said, remedy in _REMEDIES.items() if said in message), "")
    return f"{type(error).__name__}: {message}{where}{remedy}" if message else f"{type(error).__name__}{where}"
