// Included before every source: on the simulator a CUDA tensor is a CPU tensor, so bindings that ask for one take the other.
#pragma once
#if __has_include(<dlpack/dlpack.h>)
#include <dlpack/dlpack.h>
#define kDLCUDA kDLCPU
#endif
