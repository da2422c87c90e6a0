// Stands in front of NVIDIA's header of this name; cuda::pipeline itself is refused (simulator/unsupported.py).
#pragma once
#include "cuda_pipeline_primitives.h"
