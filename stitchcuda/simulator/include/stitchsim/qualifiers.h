// CUDA's qualifiers in C++. Shared memory is per operating system thread, since a block runs on one; constants are per file.
#pragma once
#undef __global__
#undef __device__
#undef __host__
#undef __shared__
#undef __constant__
#undef __managed__
#undef __grid_constant__
#undef __launch_bounds__
#undef __maxnreg__
#define __global__
#define __device__
#define __host__
#define __shared__ static thread_local
#define __constant__ static
#define __managed__
#define __grid_constant__
#define __launch_bounds__(...)
#define __maxnreg__(...)

// What a program's own preprocessor conditions see (the rewriter puts these in place of __CUDA_ARCH__ and __CUDACC__).
#define STITCHSIM_CUDA_ARCH 900
#define STITCHSIM_CUDACC 1
