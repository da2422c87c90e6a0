// Included before every rewritten .cu, as nvcc includes cuda_runtime.h: NVIDIA's own headers for the types, then CUDA's device side.
#pragma once
#include <cuda_runtime.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cassert>
#include <cstdio>
#include <cstdlib>

#include "qualifiers.h"

#include "thread.h"
#include "block.h"
#include "launch.h"
#include "exchange.h"
#include "rounding.h"
#include "math.h"
#include "integer.h"
#include "packed.h"
#include "narrow.h"
#include "warp.h"
#include "atomics.h"
#include "memory.h"
#include "functions.h"

#include "device.h"
