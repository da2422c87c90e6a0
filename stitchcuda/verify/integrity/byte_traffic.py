"""Counts the bytes that a call moves, by who moves them: own kernels, vendor libraries, torch's operators.

The simulator has no device time, so shares of bytes take its place. `ByteTraffic` sees each aten operator of a call and notes
its bytes in the dispatch recorder; the simulator's runtime counts the tensors that the program's kernels are launched on. This
file also fills fresh allocations with poison, so that an output which no kernel writes shows as NaN. It decides nothing.
Where to look next: `verify/integrity/dispatch_recorder.py` (which keeps the sums, and finds operators that no mode sees),
`simulator/loaded_runtime.py` (bytes of launches), `verify/policy.py` (policies on shares).
"""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Literal

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from stitchcuda.simulator import loaded_runtime
from stitchcuda.verify.compare import unwritten
from stitchcuda.verify.integrity.dispatch_recorder import is_builtin_operator, mark, mark_seen, note
from stitchcuda.verify.messages.shared_tensors import extent, memory_of

_VENDOR = (
    "mm", "addmm", "bmm", "baddbmm", "addbmm", "mv", "addmv", "dot", "vdot", "linear", "convolution", "_convolution",
    "convolution_overrideable", "mkldnn_convolution", "cudnn_convolution", "cudnn_convolution_transpose",
    "mkldnn_rnn_layer", "_cudnn_rnn", "_fft_r2c", "_fft_c2c", "_fft_c2r", "_int_mm", "_scaled_mm", "mkldnn_linear",
)  # fmt: skip
_VENDOR_PREFIXES = ("_scaled_dot_product", "_flash_attention", "_efficient_attention", "linalg_", "_linalg_", "_addmm")
_LOOKUPS = ("embedding", "index", "index_select", "gather", "take")  # they read as much of the first tensor as they return
_COPIES = ("copy_", "clone")                # both return the target and get the source last
_IN_NAME_ONLY = ("set_", "detach_", "resize_")  # they give a tensor other memory and touch no element
_ALLOCATIONS = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_permuted")


def extent_bytes(tensor: torch.Tensor) -> int:
    """The bytes of a tensor's elements, each element of an expanded tensor counted once; for a sparse one, of its parts."""
    if tensor.layout is not torch.strided:
        parts = _parts(tensor)
        return sum(map(extent_bytes, parts)) if parts else tensor.numel() * tensor.element_size()
    elements = 1
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        elements *= size if stride != 0 or size == 0 else 1
    return elements * tensor.element_size()


def _parts(tensor: torch.Tensor) -> list[torch.Tensor]:
    """The strided tensors of which a sparse tensor consists."""
    if tensor.layout is torch.sparse_coo:
        return [tensor._indices(), tensor._values()]
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    return []                              # a layout of some library, such as oneDNN


def operator_name(func: Any) -> str:
    """"addmm" for aten.addmm.default."""
    return str(func._schema.name).split("::")[-1]


def is_allocation(func: Any) -> bool:
    return operator_name(func) in _ALLOCATIONS


def is_vendor(name: str) -> bool:
    return name in _VENDOR or name.startswith(_VENDOR_PREFIXES)


_PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
_HOST = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
_SMALL = 3
_NUMBERS = 61                              # different ones in memory that looks used
# Repeated: NaN, about 3, very large in every float type, about 0.7.
_BYTES = {"nan": 0xFF, "small": 0x40, "large": 0x7B, "ones": 0x7B, "used": 0x3F, "zeros": 0x00}
_MOST_INTRUDERS = 4
_trusted: set[CodeType] = set()            # of functions that call an operator, or that our modes run when one is called
_ZONE = 512                                # bytes: a multiple of every alignment
Kind = Literal["nan", "small", "large", "ones", "used", "zeros"]
HARMLESS: tuple[Kind, ...] = ("small", "large", "ones")
ORDINARY: tuple[Kind, ...] = ("used", "zeros")
"""What new memory holds in a user's process: numbers of earlier tensors, or nothing."""
_kind: Kind = "nan"


def poison_as(kind: Kind) -> None:
    """Sets what memory is filled with from now on: NaN, small numbers, large ones, integers with all bits set, or `ORDINARY`.

    Ablation uses those that are `HARMLESS`. With NaN a kernel whose result is multiplied by zero would look needed.
    """
    global _kind
    _kind = kind


def poison(tensor: torch.Tensor, *, inverted: bool = False) -> None:
    """Fills a tensor with NaN or the most negative integer (or what `poison_as` says), which no honest kernel leaves behind.

    Booleans alternate between true and false, starting with true if `inverted`, so that an output which nothing writes differs
    between two calls with different poisons.
    """
    if tensor.numel() == 0:
        return
    if tensor.dtype is torch.bool:
        _alternate(tensor, inverted)
    elif _kind == "used":
        _fill_as_used(tensor)
    elif _kind != "nan":
        tensor.fill_(_harmless(tensor.dtype))
    elif tensor.dtype.is_floating_point or tensor.dtype.is_complex:
        unwritten.fill(tensor)
    else:
        tensor.fill_(torch.iinfo(tensor.dtype).min if tensor.dtype is not torch.uint8 else 0xA5)


def _harmless(dtype: torch.dtype) -> float:
    """The ordinary number of the kind that `poison_as` set."""
    if _kind == "zeros":
        return 0
    if _kind == "small":
        return _SMALL
    if dtype.is_floating_point or dtype.is_complex:
        return float(torch.finfo(dtype).max) / 1024
    if _kind == "ones":
        return -1 if torch.iinfo(dtype).min < 0 else torch.iinfo(dtype).max
    return torch.iinfo(dtype).max // 2


def _fill_as_used(tensor: torch.Tensor) -> None:
    flat = tensor.as_strided((extent(tensor),), (1,))
    numbers = torch.tensor([number * 37 % _NUMBERS - 30 for number in range(_NUMBERS)], device=tensor.device)
    if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
        numbers = numbers / 8
    whole = flat.numel() // _NUMBERS * _NUMBERS
    flat[:whole].view(-1, _NUMBERS).copy_(numbers)
    flat[whole:].copy_(numbers[: flat.numel() - whole])


def _alternate(tensor: torch.Tensor, inverted: bool) -> None:
    if tensor.is_contiguous():
        flat = tensor.view(-1)
        flat[0::2] = inverted
        flat[1::2] = not inverted
    else:
        tensor.fill_(inverted)


def add_red_zones(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """Copies tensors into memory with 512 bytes of poison before and after: a read out of bounds finds no zeros. The simulator
    refuses it.

    Tensors that share memory are returned as they are.
    """
    owners = [tensor.untyped_storage().data_ptr() for tensor in tensors]
    return [
        _red_zoned(tensor) if owners.count(owner) == 1 and tensor.numel() else tensor
        for tensor, owner in zip(tensors, owners, strict=True)
    ]


def _red_zoned(tensor: torch.Tensor) -> torch.Tensor:
    span = extent(tensor)
    zone = _ZONE // tensor.element_size()
    whole = torch.empty(span + 2 * zone, dtype=tensor.dtype, device=tensor.device)
    poison(whole)
    inside = whole[zone : zone + span]
    inside.copy_(tensor.as_strided((span,), (1,)))
    loaded_runtime.bound_access(inside.data_ptr(), inside.nbytes)
    return whole.as_strided(tensor.shape, tensor.stride(), zone)


def trust(file: str) -> None:
    """Takes what a module's functions do inside an operator for ours. By their code: a program may give its own any file."""
    waiting = [compile(Path(file).read_bytes(), file, "exec", dont_inherit=True)]
    while waiting:
        code = waiting.pop()
        _trusted.add(code)
        waiting += [constant for constant in code.co_consts if isinstance(constant, CodeType)]


for _module in (torch._ops.__file__, contextlib.__file__, __file__):
    trust(_module)


def poison_cached() -> None:
    """On a GPU, fills the free blocks of the caching allocator: what allocates without the dispatcher finds no old results."""
    taken = []
    stream = torch.cuda.current_stream().cuda_stream
    for segment in torch.cuda.memory_snapshot():  # type: ignore[no-untyped-call, unused-ignore]
        if tuple(segment.get("segment_pool_id", (0, 0))) != (0, 0) or segment["stream"] != stream:
            continue                       # the pool of a graph, whose replays need its contents, or of another stream
        for block in segment["blocks"]:
            if block["state"] == "inactive":
                taken.append(torch.empty(block["size"], dtype=torch.uint8, device="cuda"))
                taken[-1].fill_(_BYTES[_kind])
    torch.cuda.synchronize()


class Poison(TorchDispatchMode):  # type: ignore[misc, no-untyped-call, unused-ignore]
    """A dispatch mode that fills every fresh allocation with poison. It counts nothing.

    `intruders`: Python functions that ran inside an operator of torch's own, where nobody counts what they do, such as the
    deleter of memory that the operator gives back.
    """

    def __init__(self, *, inverted: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call, unused-ignore]
        self._inverted = inverted
        self.intruders: list[str] = []

    def __torch_dispatch__(
        self, func: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if not all(kind in _PLAIN for kind in types):
            return NotImplemented          # the tensor's own type handles it; the operators that it calls come here
        if not isinstance(func, torch._ops.OpOverload):
            raise TypeError(f"{func} is no operator")
        with mark():
            builtin = is_builtin_operator(str(func.name()))  # type: ignore[no-untyped-call]
            with self._alone() if builtin else contextlib.nullcontext():  # a program's own may be a Python function
                result = func(*args, **(kwargs or {}))
            if is_allocation(func) and isinstance(result, torch.Tensor):
                poison(result, inverted=self._inverted)
        return result

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Notes each Python function that is called in the block, on this thread. No garbage is collected meanwhile: that may
        call functions at any place."""
        def see(frame: FrameType, event: str, _: Any) -> None:
            if event == "call" and frame.f_code not in _trusted and len(self.intruders) < _MOST_INTRUDERS:
                self.intruders.append(f"{Path(frame.f_code.co_filename).name} line {frame.f_lineno}")

        before, collecting = sys.getprofile(), gc.isenabled()
        gc.disable()
        sys.setprofile(see)
        try:
            yield
        finally:
            sys.setprofile(before)
            if collecting:
                gc.enable()


class ByteTraffic(Poison):  # type: ignore[no-untyped-call, unused-ignore]
    """Also notes the bytes of each operator: kind "vendor" or "framework" with the operator's name and the line in `folder`
    that called it, "copy" with both addresses for a copy that converts nothing, "read" for bytes that the host reads."""

    def __init__(
        self, *, inverted: bool = False, folder: str = "", note: Callable[[str, int, str], object] = note
    ) -> None:
        super().__init__(inverted=inverted)
        self._note, self._folder = note, folder
        loaded_runtime.take_bytes()        # resets the counter: what was counted belongs to earlier calls

    def __torch_dispatch__(
        self, func: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if isinstance(func, torch._ops.OpOverload) and not is_builtin_operator(str(func.name())):  # type: ignore[no-untyped-call]
            mark_seen()                    # the program's own operator counts by the operators that it calls
            with self:
                return func.redispatch(_HOST, *args, **(kwargs or {}))
        result = super().__torch_dispatch__(func, types, args, kwargs)
        if result is NotImplemented:
            return result
        returned = tensors_of(result)
        announce(returned)
        name = operator_name(func)
        if is_allocation(func) or func.is_view or name in _IN_NAME_ONLY:
            return result
        given = tensors_of((args, kwargs))
        made = sum(map(extent_bytes, returned or _written(func, args)))
        if name in _LOOKUPS and given:
            moved = 2 * made + sum(extent_bytes(tensor) for tensor in given[1:])
        else:
            moved = made + sum(map(extent_bytes, given))
        if name in _COPIES and (ends := _plain_copy([*returned, *given])):
            self._note("copy", moved, f"{name} {ends}")  # counts as framework unless it copies into or out of a CUDA graph
        else:
            what = f"{name} {layouts(returned)}\t{_calling_line(self._folder)}"
            self._note("vendor" if is_vendor(name) else "framework", moved, what)
        if name == "_local_scalar_dense":
            self._note("read", given[0].element_size(), name)
        elif func._schema.is_mutable:
            strided = [tensor for tensor in given if tensor.layout is torch.strided]
            outside = [tensor for tensor in strided if loaded_runtime.is_host_memory(tensor.data_ptr())]
            self._note("read", sum(map(extent_bytes, outside)), name)
        return result


def _calling_line(folder: str) -> str:
    """The innermost line of a file in `folder` that is being run, such as "model_new.py line 7"; "" if there is none."""
    frame: FrameType | None = sys._getframe(2) if folder else None
    while frame is not None and not frame.f_code.co_filename.startswith(folder):
        frame = frame.f_back
    return "" if frame is None else f"{Path(frame.f_code.co_filename).name} line {frame.f_lineno}"


def layouts(tensors: Iterable[torch.Tensor]) -> str:
    """Returns "[8, 64] float32; [4] int64 strides [2]": shapes, types, and strides of those that are not contiguous."""
    texts = []
    for tensor in tensors:
        text = f"{list(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"
        plain = tensor.layout is not torch.strided or tensor.is_contiguous()
        texts.append(text if plain else f"{text} strides {list(tensor.stride())}")
    return "; ".join(texts)


def _written(func: Any, args: tuple[Any, ...]) -> list[torch.Tensor]:
    """The arguments that an operator writes to, such as `_foreach_tanh_`, which returns none of them."""
    places = zip(func._schema.arguments, args, strict=False)
    return tensors_of([value for place, value in places if place.alias_info is not None and place.alias_info.is_write])


def _plain_copy(tensors: list[torch.Tensor]) -> str:
    """Returns "source target length" (addresses, bytes) of a copy; "" if it changes dtype, shape, layout or sign."""
    target, source = tensors[0], tensors[-1]
    if target.shape != source.shape or target.dtype is not source.dtype or not target.numel():
        return ""
    if any(a != b for size, a, b in zip(target.shape, target.stride(), source.stride(), strict=True) if size > 1):
        return ""
    for tensor in (source, target):
        ordinary = type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout is torch.strided
        if not ordinary or tensor.is_conj() or tensor.is_neg() or extent(tensor) != tensor.numel():
            return ""
        if loaded_runtime.is_host_memory(tensor.data_ptr()):
            return ""
    return f"{source.data_ptr()} {target.data_ptr()} {memory_of(target)[1]}"


def announce(tensors: Iterable[torch.Tensor]) -> None:
    """Tells the simulator's runtime of tensors that kernels may be launched on."""
    for tensor in tensors:
        for part in [tensor] if tensor.layout is torch.strided else _parts(tensor):
            loaded_runtime.register_tensor(part.data_ptr(), extent_bytes(part))


def tensors_of(value: Any) -> list[torch.Tensor]:
    """The tensors in nested tuples, lists and dicts."""
    found: list[torch.Tensor] = []
    _visit(value, found.append)
    return found


def _visit(value: Any, see: Callable[[torch.Tensor], None]) -> None:
    if isinstance(value, torch.Tensor):
        see(value)
    elif isinstance(value, list | tuple):
        for item in value:
            _visit(item, see)
    elif isinstance(value, dict):
        for item in value.values():
            _visit(item, see)
