"""Generated CUDA against the kernel language run literally: every strategy, on the CPU simulator, and nvcc's opinion of it."""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import tvm_ffi
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from stitchcuda.compiler.codegen.emit import count_variants, emit
from stitchcuda.compiler.lower.ir import Argument, Axis, Kernel, KernelSource, KernelStore, Step
from stitchcuda.simulator.headers import cuda_includes
from stitchcuda.simulator.headers import tvm_ffi as tvm_ffi_paths
from stitchcuda.tools.device.toolkit import find_toolkit
from tests.compiler.drawn import kernels
from tests.compiler.kernels import (
    Draft,
    batch_norm,
    chain,
    channel_bias,
    group_norm,
    layer_norm,
    softmax,
    total,
    transpose,
    usual,
)
from tests.compiler.simulated import all_variants, build, combined, difference, filled, launch, tensors_of

USUAL = list(usual())


def relu() -> Kernel:
    draft = Draft("relu", (40,), comment="relu")
    draft.store("y", draft.do("maximum", draft.load("x"), 0.0))
    return draft.kernel()


def far(gap: int) -> tuple[Kernel, Kernel]:
    """x + 1 and the sum of each row, for rows that start `gap` bytes apart."""
    plus = Draft("far", (2, 50))
    plus.store("y", plus.do("add", plus.load("x", "uint8", strides=(gap, 1)), 1, dtype="int64"), "uint8")
    summed = Draft("far_sum", (2,), (50,))
    value = summed.load("x", "uint8", shape=(2, 50), strides=(gap, 1))
    summed.store_rows("y", summed.do("sum", value, dtype="int64"), "int64")
    return plus.kernel(), summed.kernel()


def hostile() -> Kernel:
    """Values and tensors called like keywords, like our own locals, like each other."""
    axes = (Axis(6), Axis(9, True))
    arguments = (
        Argument("float", "float32", (6, 9), (9, 1), "in"), Argument("row", "float32", (6,), (1,), "in"),
        Argument("threadIdx", "float32", (6, 9), (9, 1), "out"),
    )  # fmt: skip
    steps = (
        Step("row", "load", ("float",), "float32", (9, 1)), Step("lane", "load", ("row",), "float32", (1, 0)),
        Step("j", "sum", ("row",)), Step("kLength", "mul", ("j", "lane")), Step("expf", "tanh", ("kLength",)),
        Step("0x", "sub", ("row", "expf")),
    )  # fmt: skip
    return Kernel("hostile", axes, arguments, steps, (KernelStore("threadIdx", "0x", (9, 1)),))


GAP = 3 * 2**30
SPECIAL = [relu(), total("whole_max", (3, 40), (1,), "max"), total("whole_min", (3, 40), (1,), "min"), *far(GAP), hostile()]


@pytest.fixture(scope="module")
def usual_module(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, dict[str, list[tuple[Kernel, KernelSource]]]]:
    """All strategies of all usual kernels in one module, which the processes of one run of the tests build once."""
    pairs = {kernel.name: all_variants([kernel]) for kernel in [*USUAL, *SPECIAL]}
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "usual"
    folder.mkdir(exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        module = build([source for group in pairs.values() for _, source in group], folder)
    return module, pairs


@pytest.mark.more
@pytest.mark.parametrize("name", [kernel.name for kernel in USUAL])
def test_every_strategy_computes_what_the_kernel_says(name: str, usual_module: Any) -> None:
    module, pairs = usual_module
    assert len(pairs[name]) >= 1
    for kernel, source in pairs[name]:
        assert difference(kernel, source, module, tensors_of(kernel, filled())) == ""


@pytest.mark.more
@pytest.mark.parametrize("name", ["ln_128", "sm_1024", "chain_4x1000", "channels_even", "gn_half", "sum_first", "slice_even"])
def test_misaligned_tensors_are_computed_element_by_element(name: str, usual_module: Any) -> None:
    module, pairs = usual_module
    for kernel, source in pairs[name]:
        tensors = tensors_of(kernel, filled(), shift=1)
        assert any(tensor.data_ptr() % 16 for tensor in tensors.values())
        assert difference(kernel, source, module, tensors) == ""


@pytest.mark.more
def test_results_are_the_same_bits_every_time(usual_module: Any) -> None:
    module, pairs = usual_module
    for kernel, source in pairs["bn_split"] + pairs["sum_all"]:
        first, second = tensors_of(kernel, filled(3)), tensors_of(kernel, filled(3))
        launch(module, source, first)
        launch(module, source, second)
        assert all(torch.equal(first[a.name], second[a.name]) for a in kernel.arguments if a.role != "in")


@pytest.mark.more
@settings(
    max_examples=2, deadline=None, derandomize=True, database=None, phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)  # fmt: skip
@given(drawn=st.lists(kernels(), min_size=10, max_size=10), shift=st.sampled_from((0, 1)))
def test_random_kernels(drawn: list[Kernel], shift: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    named = [replace(kernel, name=f"drawn{number}") for number, kernel in enumerate(drawn)]
    pairs = all_variants(named)
    module = build([source for _, source in pairs], tmp_path_factory.mktemp("drawn"))
    for kernel, source in pairs:
        assert difference(kernel, source, module, tensors_of(kernel, filled(), shift)) == "", (kernel, source.cuda)


@pytest.mark.more
@pytest.mark.parametrize(("name", "places"), [("relu", [5]), ("whole_max", [0]), ("whole_min", [0])])
def test_nan_wins_where_it_does_in_torch(name: str, places: list[int], usual_module: Any) -> None:
    module, pairs = usual_module
    for kernel, source in pairs[name]:
        tensors = tensors_of(kernel, filled())
        tensors["x"].view(-1)[5] = torch.nan
        launch(module, source, tensors)
        assert tensors["y"].isnan().nonzero().flatten().tolist() == places


@pytest.mark.more
def test_offsets_beyond_two_billion(usual_module: Any) -> None:
    """Rows 3 GiB apart; only the touched pages of that memory exist."""
    module, pairs = usual_module
    x = torch.empty(GAP + 64, dtype=torch.uint8).as_strided((2, 50), (GAP, 1))
    x[0], x[1] = torch.arange(50), torch.arange(50, 100)
    for _, source in pairs["far"]:
        y = torch.zeros(2, 50, dtype=torch.uint8)
        getattr(module, source.name)(x, y)
        assert torch.equal(y, x + 1)
    for _, source in pairs["far_sum"]:
        sums = torch.zeros(2, dtype=torch.int64)
        getattr(module, source.name)(x, sums)
        assert sums.tolist() == [sum(range(50)), sum(range(50, 100))]


@pytest.mark.more
def test_a_tensor_that_does_not_fit_is_refused_by_name(usual_module: Any) -> None:
    module, pairs = usual_module
    kernel, source = pairs["ln_1024"][0]
    call = getattr(module, source.name)
    good = tensors_of(kernel, filled())
    wrong = {
        "weight": (good["weight"].double(), TypeError, "argument weight: expected elements of type .*, got float64"),
        "y": (good["y"][:-1], ValueError, r"argument y: expected shape \(3, 1024\), got \(2, 1024\)"),
        "x": (good["x"].t().contiguous().t(), ValueError, r"argument x: expected strides \(1024, 1\), got \(1, 3\)"),
        "bias": (good["bias"][None], ValueError, r"argument bias: expected shape \(1024\), got \(1, 1024\)"),
    }
    for name, (tensor, error, message) in wrong.items():
        with pytest.raises(error, match=f"{source.name}: {message}"):
            call(*{**good, name: tensor}.values())
    kernel, source = next(pair for pair in pairs["sum_all"] if pair[1].workspace_bytes)
    small = torch.zeros(source.workspace_bytes - 1, dtype=torch.uint8)
    with pytest.raises(ValueError, match=f"argument workspace: expected {source.workspace_bytes} contiguous bytes"):
        getattr(module, source.name)(*tensors_of(kernel, filled()).values(), small)


def test_a_cpu_tensor_is_refused(tmp_path: Path) -> None:
    """The binding as a program has it, without the simulator. The launcher is not reached."""
    source = emit(chain("onlycuda", (4,)))
    binding, library = tmp_path / "binding.cc", tmp_path / "binding.so"
    binding.write_text(source.binding)
    headers, tvm = tvm_ffi_paths()
    includes = [f"-I{folder}" for folder in (*headers, *cuda_includes())]
    ignored = ["-Wl,--unresolved-symbols=ignore-all", "-Wl,-z,lazy"]
    command = ["g++", "-std=c++17", "-shared", "-fPIC", *includes, str(binding), "-o", str(library), str(tvm), *ignored]
    subprocess.run(command, check=True)
    module = tvm_ffi.load_module(str(library))
    tensors = tensors_of(chain("onlycuda", (4,)), filled())
    with pytest.raises(ValueError, match="onlycuda: argument x: expected a CUDA tensor, got one on device type 1"):
        module.onlycuda(*tensors.values())


@pytest.mark.more
@pytest.mark.skipif(find_toolkit() is None, reason="needs nvcc (a CUDA toolkit, or `pip install -e '.[toolkit]'`)")
def test_nvcc_takes_it_without_warnings_or_spills(tmp_path: Path) -> None:
    toolkit = find_toolkit()
    assert toolkit is not None
    large = [
        layer_norm("ln", 16384, 1024, "bfloat16"), layer_norm("ln_odd", 8192, 771), softmax("sm", (32768, 1024), 1),
        softmax("sm_columns", (64, 128, 3136), 1), softmax("sm_long", (1024, 50257), 1), batch_norm("bn", 32, 64, 3136),
        batch_norm("bn_odd", 128, 512, 49), group_norm("gn", 32, 32, 8, 3136), chain("gelu", (4096, 4096), "float16"),
        channel_bias("bias", 128, 512, 49), transpose("turn", 16, 1024, 1024, "bfloat16"), total("sum", (1 << 24,), (0,)),
    ]  # fmt: skip
    pairs = all_variants(large)
    file = tmp_path / "all.cu"
    file.write_text(combined([source.cuda for _, source in pairs]))
    command = [str(toolkit.nvcc), "-arch=sm_90a", "-std=c++17", "-cubin", "-Xptxas", "-v", "-o", str(tmp_path / "all.cubin")]
    done = subprocess.run([*command, str(file)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr
    assert len(re.findall(r"Used \d+ registers", done.stderr)) >= len(pairs)
    assert set(re.findall(r"(\d+) bytes (?:stack frame|spill stores)", done.stderr)) == {"0"}


def test_sources_are_deterministic_and_name_their_kernels() -> None:
    for kernel in USUAL:
        for number in range(count_variants(kernel)):
            source = emit(kernel, number)
            assert source == emit(kernel, number)
            assert source.launches == len(source.kernels)
            assert all(f"{name}<" in source.cuda for name in source.kernels)
            assert f'extern "C" int {kernel.name}_launch(' in source.cuda


def test_strategies_are_different_programs() -> None:
    kernel = layer_norm("ln", 4096, 768)
    texts = [emit(kernel, number).cuda for number in range(count_variants(kernel))]
    assert len(texts) >= 3
    assert len(set(texts)) == len(texts)
    with pytest.raises(IndexError, match="variants 0 to"):
        emit(kernel, len(texts))


@pytest.mark.more
def test_names_that_mean_something_in_cuda(usual_module: Any) -> None:
    module, pairs = usual_module
    for kernel, source in pairs["hostile"]:
        assert difference(kernel, source, module, tensors_of(kernel, filled())) == ""


@pytest.mark.more
def test_nothing_is_launched_for_empty_results(usual_module: Any) -> None:
    module, pairs = usual_module
    for name in ("no_rows", "chain_empty"):
        ((kernel, source),) = pairs[name]
        assert source.kernels == ()
        assert "<<<" not in source.cuda
        launch(module, source, tensors_of(kernel, filled()))


def test_element_types_without_a_translation_are_refused() -> None:
    draft = Draft("complex", (4,))
    draft.arguments["x"] = Argument("x", "complex64", (4,), (1,), "in")
    draft.store("y", draft.do("add", 1.0, 2.0))
    with pytest.raises(ValueError, match="complex64"):
        emit(draft.kernel())
