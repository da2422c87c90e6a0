"""Flags: what honest programs pass goes through, what loads, runs, reads or writes elsewhere is refused in a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from stitchcuda.tools.build.build_flags import FlagRefused, Flags


@pytest.mark.parametrize(
    "flags",
    [
        ["-O3", "--use_fast_math"],
        ["-use_fast_math", "-lineinfo", "--generate-line-info", "-w"],
        ["-std=c++17"],
        ["--std", "c++20"],
        ["-gencode=arch=compute_90a,code=sm_90a"],
        ["-gencode", "arch=compute_80,code=sm_80", "-gencode", "arch=compute_90,code=[sm_90,compute_90]"],
        ["-arch=sm_90", "-arch", "native"],
        ["-DTILE=32", "-D", "NAME", "-DT=at::Half", "-DSUM(a,b)=(a + b)", "-UNDEBUG", '-DVERSION="1.0"'],
        ["-Xptxas", "-O3", "-Xptxas=-v,-dlcm=ca", "--ptxas-options=-v --warn-spills"],
        ["-maxrregcount=64", "--maxrregcount", "128", "--threads", "4", "-t=2"],
        ["--expt-relaxed-constexpr", "--expt-extended-lambda", "--extended-lambda"],
        ["-Xcompiler", "-fPIC", "-Xcompiler=-O3,-march=native", "--compiler-options", "'-fPIC -fopenmp'"],
        ["--compiler-options '-fPIC'"],
        ["-ftz=true", "--fmad=false", "-prec-div=false", "--prec-sqrt=false", "--extra-device-vectorization"],
        ["-diag-suppress=177", "-Xcudafe", "--diag_suppress=177", "--default-stream", "per-thread", "-O3 --use_fast_math"],
        ["-U__CUDA_NO_HALF_OPERATORS__", "-U__CUDA_NO_HALF_CONVERSIONS__"],
    ],
)
def test_honest_flags_for_nvcc(flags: list[str], tmp_path: Path) -> None:
    Flags(tmp_path).cuda(flags)


def test_what_goes_to_the_compilers(tmp_path: Path) -> None:
    flags = Flags(tmp_path)
    assert flags.cuda(["-O3 -Xptxas -v", "-arch=sm_80", "-Iinclude"]) == ("-O3", "-Xptxas", "-v", f"-I{tmp_path}/include")
    assert flags.host(["-O3", "-march=native", "-ffast-math", "-Wno-unused", "-fopenmp", "-mavx2", "-g"])[1] == "-march=native"
    libraries = ["-lcublas", "-lcublasLt", "-lcudnn", "-L/usr/local/cuda/lib64", "-lcudart", "-Wl,-rpath,/usr/local/cuda/lib64"]
    assert flags.link(libraries) == tuple(libraries)
    assert flags.includes(["kernels", "/usr/local/cuda/include"])[0] == tmp_path / "kernels"


HOSTILE = [
    "-fplugin=./x.so", "-wrapper", "-wrapper=sh,-c", "-specs=x", "-B.", "-B/tmp", "-ccbin=/tmp/g++",
    "--compiler-bindir=/tmp", "-o", "-o/tmp/x", "-MF", "-MD", "@options", "-include", "-include=/etc/passwd", "-imacros",
    "--pre-include=/etc/passwd", "-optf", "--options-file=x", "--run", "-run", "--run-args=x", "-keep", "--keep-dir=/tmp",
    "-dryrun", "--dryrun", "-save-temps", "-I/etc", "-I/home", "-I..", "-I../other", "-isystem/etc", "-isystem=/root", "-D",
    "-DX=$(id)", "-DX=`id`", "-DX=1;id", "-DX=a|b", "-DX=\n", "-Xcompiler=-fplugin=x.so", "-Xcompiler=-wrapper,sh",
    "-Xcompiler=-o/tmp/x", "-Xcompiler=@x", "-Xlinker=-rpath", "-Xlinker", "-Xptxas=-o,x", "-Xptxas=--options-file=x",
    "-Xptxas=-optf", "--compiler-options=-specs=x", "-fdump-tree-all", "-fprofile-generate=/tmp",
    "-fprofile-use=/etc/passwd", "-Wa,-I/etc", "-Wp,-MD,/tmp/x", "-Wl,-rpath,/tmp", "-x", "-E", "-S",
    "--input-drive-prefix=x", "--nvlink-options=x", "-dlink", "-L/tmp", "-T/tmp/x", "/etc/passwd", "x.o", "-l:blob.a",
    "-Wl,-T,x", "-Wl,--dynamic-linker=/tmp/x", "-Wl,@x", "--plugin=x", "-Wl,-plugin,x", "-fuse-ld=/tmp/ld", "--prefix=/tmp",
    "--sysroot=/tmp", "-idirafter/etc", "-fsanitize=address", "-mllvm", "'", "-ldir=/tmp/cubins", "--library-path=/tmp",
    "--help",
]  # fmt: skip


@pytest.mark.parametrize("flag", HOSTILE)
def test_hostile_flags(flag: str, tmp_path: Path) -> None:
    flags = Flags(tmp_path / "program")
    for check in (flags.cuda, flags.host, flags.link):
        if check != flags.link or not flag.startswith("-D"):
            with pytest.raises(FlagRefused, match=r"flag|include folder"):
                check([flag])


def test_libraries_of_the_program_are_no_sources(tmp_path: Path) -> None:
    with pytest.raises(FlagRefused, match="libraries outside"):
        Flags(tmp_path).link([f"-L{tmp_path}"])
    (tmp_path / "away").symlink_to("/etc")
    with pytest.raises(FlagRefused, match="lies outside of the program"):
        Flags(tmp_path).includes(["away"])


@pytest.mark.parametrize("flag", [
    "-lcublas_static", "-lcublasLt_static", "-lcudnn_static", "-lcufft_static_nocallback", "-lcusparse_static",
    "-lcutensor_static",
])  # fmt: skip
def test_kernels_of_others_are_not_linked_into_the_programs_own(flag: str, tmp_path: Path) -> None:
    with pytest.raises(FlagRefused, match=f"link the shared one: {flag.partition('_static')[0]}$"):
        Flags(tmp_path).link(["-lcublas", flag])
    assert Flags(tmp_path).link(["-lcudart_static", "-lstatic_cast"]) == ("-lcudart_static", "-lstatic_cast")
