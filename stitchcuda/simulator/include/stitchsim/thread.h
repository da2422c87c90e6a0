// What a CUDA thread knows about itself. The runtime sets these whenever it starts or resumes a thread; kernels only read.
//
// They live in the shared runtime library in initial-exec thread-local storage: one instruction to read, no function call.
#pragma once
#include <cuda_runtime.h>

#define STITCHSIM_LOCAL extern __attribute__((visibility("default"), tls_model("initial-exec"))) __thread

STITCHSIM_LOCAL uint3 threadIdx;
STITCHSIM_LOCAL uint3 blockIdx;
STITCHSIM_LOCAL dim3 blockDim;
STITCHSIM_LOCAL dim3 gridDim;

namespace stitchsim {

struct Place {
  int thread;                     // linear index in the block
  int lane;                       // thread % 32
  int warp;                       // thread / 32
  unsigned long block_serial;     // differs for any two blocks that one operating system thread runs
  unsigned char* dynamic_shared;  // the launch's dynamic shared memory
};
STITCHSIM_LOCAL Place here;

}  // namespace stitchsim

constexpr int warpSize = 32;
