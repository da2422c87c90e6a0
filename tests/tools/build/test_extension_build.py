"""Extensions in torch's style build fast and mean the same: the light front, what it refuses, nvcc's halves side by side."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from stitchcuda.sandbox import command
from stitchcuda.simulator.torch_extension import inline_sources
from stitchcuda.tools.build import bindings, compiler_log, nvcc, passes, torch_front
from stitchcuda.tools.device import toolkit
from tests.verify import programs

ARCH = "sm_90a"
KIT = toolkit.find_toolkit()
HEADERS = bindings.torch("own").torch or Path()
INCLUDE = "#include <torch/types.h>\n"
CUDA = """
__global__ void half_kernel(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = 0.5f * x[i];
}
torch::Tensor fresh(torch::Tensor x, bool wanted) {
  TORCH_CHECK(x.dim() == 2, "x must be a matrix");
  auto options = torch::TensorOptions().dtype(torch::kFloat32).requires_grad(wanted);
  return wanted ? torch::zeros({x.size(1), 2}, options) : torch::empty_like(x);
}
void launch(torch::Tensor x, torch::Tensor y) {
  half_kernel<<<1, 32>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
}
"""
CPP = "torch::Tensor fresh(torch::Tensor x, bool wanted);\nvoid launch(torch::Tensor x, torch::Tensor y);"

pytestmark = pytest.mark.skipif(KIT is None, reason=toolkit.missing() or "no toolkit")


def in_sandbox(order: Sequence[str], folder: Path) -> command.Finished:
    return command.run(order, seconds=300, cwd=folder, read=(folder.parent,), write=(folder,))


def front(text: str, folder: Path) -> str:
    assert torch_front.write_front([text], HEADERS, folder)
    return (folder / "stitchcuda_torch_front.h").read_text()


def sources(folder: Path, cuda: str = CUDA, cpp: str = CPP) -> list[Path]:
    folder.mkdir()
    functions = re.findall(r"(\w+)\(.*?\);", cpp)
    texts = inline_sources([cpp], [cuda], {one: one for one in functions})
    for name, text in texts.items():
        (folder / name).write_text(text)
    return [folder / name for name in texts]


@pytest.mark.more
def test_halves_beside_each_other_make_what_nvcc_makes(tmp_path: Path) -> None:
    assert KIT is not None
    source = tmp_path / "two.cu"
    source.write_text("template <typename T> __global__ void put(T* x) { *x = T(1); }\n"
                      "__constant__ float c[4];\nnamespace { __device__ int hidden; }\n"
                      "__global__ void own(float* x) { *x = c[1] + hidden; }\n"
                      "void both(float* x, double* y) { put<<<1, 1>>>(x); put<<<1, 1>>>(y); own<<<1, 1>>>(x); }\n")  # fmt: skip
    flags = ("-std=c++17", "-gencode=arch=compute_90a,code=sm_90a", "-Xptxas", "-v", "-Xcompiler", "-fPIC")
    order = (str(KIT.nvcc), *flags, "-c", str(source))
    (scratch := tmp_path / "scratch").mkdir()
    quick = passes.compile_object(order, tmp_path / "scratch" / "made.o", scratch, in_sandbox)
    assert quick is not None
    assert quick.code == 0, quick.output
    plain = subprocess.run([*order, "-o", tmp_path / "plain.o"], capture_output=True, text=True, check=True)
    assert compiler_log.kernel_usage(quick.output) == compiler_log.kernel_usage(plain.stdout + plain.stderr)
    assert symbols(scratch / "made.o") == symbols(tmp_path / "plain.o")


def test_errors_of_the_halves_are_nvccs(tmp_path: Path) -> None:
    assert KIT is not None
    source = tmp_path / "broken.cu"
    source.write_text("__global__ void put(float* x) { *x = nothing; }\n")
    order = (str(KIT.nvcc), "-gencode=arch=compute_90a,code=sm_90a", "-c", str(source))
    (scratch := tmp_path / "scratch").mkdir()
    quick = passes.compile_object(order, scratch / "made.o", scratch, in_sandbox)
    plain = subprocess.run([*order, "-o", tmp_path / "plain.o"], capture_output=True, text=True, check=False)
    assert quick is not None
    assert quick.code != 0
    assert quick.output.strip() == (plain.stdout + plain.stderr).strip()


def test_a_dry_run_serves_all_files_of_one_name(tmp_path: Path) -> None:
    assert KIT is not None
    orders: list[str] = []

    def run(at: Path, order: Sequence[str], _: Path) -> command.Finished:
        orders.append("dry" if "--dryrun" in order else "run")
        return in_sandbox(order, at)

    for name in ("first_kernel", "second_kernel"):
        (folder := tmp_path / name / "in").mkdir(parents=True)
        (scratch := tmp_path / name / "scratch").mkdir()
        (folder / "same.cu").write_text(f"__global__ void {name}(float* x) {{ *x = 1.0f; }}\n")
        target = ("-gencode", "arch=compute_90a,code=sm_90a", "-DNO_OTHER_TEST_HAS_THIS")
        order = (str(KIT.nvcc), *target, "-c", str(folder / "same.cu"))
        done = passes.compile_object(order, scratch / "made.o", scratch, partial(run, tmp_path / name))
        assert done is not None
        assert done.code == 0, done.output
        assert name.encode() in (scratch / "made.o").read_bytes()
    assert orders == ["dry", "run", "run"]


def test_a_dry_run_of_another_shape_is_left_to_nvcc() -> None:
    assert passes.parse_dry_run("#$ gcc -E -x c++ a.cu\n#$ something --new\n") is None


def test_the_front_has_what_the_source_names(tmp_path: Path) -> None:
    made = front(INCLUDE + CUDA, tmp_path / "front")
    assert "#include <ATen/ops/empty_like.h>" in made
    assert "ATen/ops/softmax.h" not in made
    assert "kFloat32" in made
    assert re.findall(r"(?m)^inline at::Tensor (\w+)\(", made).count("empty_like") == 1


@pytest.mark.parametrize(
    "text",
    [
        "torch::nn::Linear layer(3, 4);",
        "#include <ATen/Context.h>",
        "#ifdef TORCH_FEATURE\nint a;\n#endif",
        "TORCH_LIBRARY(own, m) {}",
    ],
)
def test_a_source_that_could_mean_more_is_not_given_the_front(tmp_path: Path, text: str) -> None:
    assert not torch_front.write_front([f"{INCLUDE}{text}\n"], HEADERS, tmp_path / "front")


def test_own_macros_and_those_of_the_command_line_may_be_asked_for(tmp_path: Path) -> None:
    text = f"{INCLUDE}#define TILE 4\n#if TILE > 2 && WIDTH && defined(__CUDA_ARCH__)\n#endif\n// torch::nn\n"
    assert torch_front.write_front([text], HEADERS, tmp_path / "front", {"WIDTH"})


@pytest.mark.more
def test_the_front_has_every_caster_of_torchs_headers(tmp_path: Path) -> None:
    """A caster that only one of them had would turn arguments over to Python differently, without any error."""
    text = '#include <torch/extension.h>\nPYBIND11_MODULE(own, m) {}\n'
    front(text, tmp_path / "front")
    own = tmp_path / "main.cpp"
    own.write_text(text)
    whole = casters(own, ())
    assert {"type_caster<at::Tensor>", "type_caster<c10::Scalar>"} <= whole
    assert casters(own, ("-isystem", str(tmp_path / "front"))) == whole


@pytest.mark.long
@pytest.mark.timeout(600)
def test_an_extension_built_with_the_front_behaves_as_torchs_own(tmp_path: Path) -> None:
    made = library(sources(tmp_path / "own"), tmp_path / "cache")
    assert made.path is not None, made.log
    assert [kernel.name for kernel in made.kernels] == ["half_kernel(float const*, float*, int)"]
    assert not fallen_back(tmp_path / "cache")
    script = f"""
import torch
from pathlib import Path
from stitchcuda.verify.program.torch_loader import load_extension
own = load_extension("own", Path({str(made.path)!r}), module=True)
x = torch.zeros(3, 5, dtype=torch.float64)
like = own.fresh(x, False)
assert like.shape == x.shape and like.dtype == x.dtype and not like.requires_grad
wanted = own.fresh(x, True)
assert wanted.shape == (5, 2) and wanted.dtype == torch.float32
assert wanted.requires_grad and wanted.is_leaf, "a factory of namespace torch heeds requires_grad"
try:
    own.fresh(torch.zeros(3), False)
except RuntimeError as error:
    assert "x must be a matrix" in str(error)
else:
    raise SystemExit("the check did not raise")
try:
    own.fresh("x", False)
except TypeError as error:
    assert "torch.Tensor" in str(error)
else:
    raise SystemExit("a string was taken for a tensor")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_front_may_come_through_a_header_of_the_program(tmp_path: Path) -> None:
    (folder := tmp_path / "own").mkdir()
    (folder / "own.h").write_text("#pragma once\n#include <torch/extension.h>\ntorch::Tensor fresh(torch::Tensor);\n")
    (folder / "fresh.cpp").write_text('#include "own.h"\ntorch::Tensor fresh(torch::Tensor x) { return torch::empty_like(x); }')
    (folder / "bound.cpp").write_text('#include "own.h"\nPYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("f", &fresh); }')
    made = library([folder / "fresh.cpp", folder / "bound.cpp"], tmp_path / "cache")
    assert made.path is not None, made.log
    assert not fallen_back(tmp_path / "cache")
    undefined = subprocess.run(["nm", "-D", "-u", made.path], capture_output=True, text=True, check=True).stdout
    assert "make_variable" not in undefined, "nothing links what the front only declares"


@pytest.mark.long
@pytest.mark.timeout(600)
def test_what_the_front_lacks_comes_from_the_whole_headers(tmp_path: Path) -> None:
    cuda = CUDA + "bool third() { return at::indexing::TensorIndex(3).is_integer(); }\n"
    made = library(sources(tmp_path / "own", cuda), tmp_path / "cache")
    assert made.path is not None, made.log
    assert "TensorIndex" in fallen_back(tmp_path / "cache")
    broken = cuda.replace("x.numel()", "x.numbers()")
    made = library(sources(tmp_path / "broken", broken), tmp_path / "cache")
    assert made.path is None
    assert made.log.startswith("cuda.cu(15): error: class \"at::Tensor\" has no member \"numbers\""), made.log


def test_where_cuda_fails_nobody_waits_for_the_bindings(tmp_path: Path) -> None:
    program = programs.kernel_program(tmp_path / "program", kernel=programs.KERNEL.replace("y[i] * scale", "y[i] * skale"))
    (binding,) = program.rglob("*_binding.cc")
    binding.write_text(binding.read_text() + "\nint broken = nothing_either;\n")
    result = nvcc.build(program, arch=ARCH, cache=tmp_path / "cache", link=True)
    assert not result.ok
    assert "skale" in result.log
    assert "nothing_either" not in result.log


def library(files: list[Path], cache: Path) -> nvcc.Library:
    return nvcc.library(files, arch=ARCH, cache=cache, root=files[0].parent, binding=bindings.torch("own"))


def symbols(made: Path) -> set[str]:
    """Names with their kinds, without what tells one translation unit from another."""
    said = subprocess.run(["nm", made], capture_output=True, text=True, check=True).stdout
    return {re.sub(r"\d+_GLOBAL__N__\w+?(?=L6hidden)|tmpxft\w+", "*", line[17:]) for line in said.splitlines()}


def casters(source: Path, before: tuple[str, ...]) -> set[str]:
    binding = bindings.torch("own")
    order = ["g++", "-E", *binding.cxx_flags, *before, *binding.includes, str(source)]
    text = subprocess.run(order, capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"struct\s[^;{<]*?(type_caster<[^{;]*?>)\s*(?=\{|:|final)", text))


def fallen_back(cache: Path) -> str:
    """Why torch's whole headers were used, out of the logs beside the objects."""
    return "".join(line for log in cache.rglob("*.json") for line in log.read_text().split("\\n") if "whole of torch" in line)
