"""Runs CUDA C++ on the CPU: ordinary SIMT kernels on CPU tensors, so that programs can be checked without a GPU.

It finds errors but is never the authority: its verdicts are of tier `simulated`, and it times nothing. In reading order:

    simulator/unsupported.py             constructs that cannot run (inline PTX, tensor cores, TMA, CUB, ...), by file and line
    simulator/rewrite.py, simulator/source.py  the few pieces of CUDA syntax that C++ cannot express
    include/stitchsim/    everything else as headers: threadIdx, launches, barriers, shuffles, atomics, math, half, ...
    include/*.h           headers that replace NVIDIA's (cooperative groups) and torch's (torch_cuda/)
    simulator/compile.py, simulator/build.py  objects and libraries named by content
    simulator/torch_extension.py  the same for sources in torch's style
    simulator/source_lines.py  the line that a mistake in device code is at
    runtime/fiber         a stack that can be left and continued
    runtime/block         who runs next in a block, what a barrier and a warp operation wait for, deadlocks
    runtime/grid          launch checks, operating system threads, errors, counters
    runtime/device_memory the memory of kernels and torch's tensors; counts what the host touches, finds writes out of bounds
    runtime/access_check  follows what device code reads and writes: races between threads, accesses out of bounds
    runtime/api_*         the CUDA runtime API as an H200 would answer it

Every device function has a case in tests/simulator/intrinsics and is compared with results recorded on a GPU.
Where to look next: `simulator/build.py`.
"""
