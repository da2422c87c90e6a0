// Included before every source of a torch extension, precompiled (simulator/torch_extension.py): torch's own CPU headers for tensors and
// for Python, then CUDA, then the few names by which such sources ask for a GPU, which on the simulator mean the CPU.
#pragma once
#include <torch/types.h>

#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include "prelude.h"
#include "torch_cuda.h"

#define is_cuda is_cpu
#define kCUDA kCPU
