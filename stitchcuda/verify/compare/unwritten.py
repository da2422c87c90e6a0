"""Fills fresh memory with a NaN that no arithmetic gives, and says what it means where an output holds NaN.

The NaN is a signalling one. Whatever computes with it (a CPU's or a GPU's arithmetic, a conversion) turns it into another NaN,
and only a copy keeps its bits. So an element with these bits was written by nothing, or holds a copy of memory that nothing
wrote. A CPU keeps the other bits when it computes, which tells, on the simulator, what was computed from such memory. It fills
and compares bits, and decides nothing. Where to look next: `verify/integrity/byte_traffic.py` (who fills memory),
`verify/compare/bound.py` (who asks).
"""

from __future__ import annotations

import torch

# The quiet bit, the highest of the mantissa, is 0 in each. The last column has it set.
_BITS: dict[torch.dtype, tuple[torch.dtype, int, int]] = {
    torch.float64: (torch.int64, 0x7FF4_A5A5_5A5A_A5A5, 0x7FFC_A5A5_5A5A_A5A5),
    torch.float32: (torch.int32, 0x7FA5_5A5A, 0x7FE5_5A5A),
    torch.float16: (torch.int16, 0x7D5A, 0x7F5A),
    torch.bfloat16: (torch.int16, 0x7F9A, 0x7FDA),
}


def fill(tensor: torch.Tensor) -> None:
    """Fills a tensor of floats or complex numbers with this NaN; a type of 8 bits, which has few of them, with any."""
    if tensor.dtype.is_complex:
        tensor = torch.view_as_real(tensor)
    if tensor.dtype in _BITS:
        integer, bits, _ = _BITS[tensor.dtype]
        tensor.view(integer).fill_(bits)
    else:
        tensor.fill_(float("nan"))


def explain_nan(given: torch.Tensor, wrong: torch.Tensor) -> str:
    """Says where the NaN of an output come from, as far as their bits show; "" for types of 8 bits and complex ones. `wrong`:
    which elements of `given` are meant."""
    if given.dtype not in _BITS:
        return ""
    integer, bits, quiet = _BITS[given.dtype]
    held = given.view(integer)
    count, untouched = int(wrong.sum()), int(((held == bits) & wrong).sum())
    if untouched == given.numel():
        return "nothing writes this output: all of it still holds the NaN that memory is filled with before a call"
    if untouched == count:
        return "nothing writes these elements: they still hold the NaN that memory is filled with before a call"
    if untouched:
        return f"nothing writes {untouched} of these elements; the other NaN are computed"
    # All bits are set beyond the ends of tensors, in shared memory and in what cudaMalloc gives.
    if int((((held == quiet) | (held == -1)) & wrong).sum()) == count:
        return "computed from memory that nothing wrote, which holds NaN here: unwritten, or beyond the end of a tensor"
    return "computed, as by 0/0 or inf - inf, or from memory that nothing wrote, which holds NaN here"
