// Stands in front of NVIDIA's header of this name; cuda::pipeline itself is refused (refuse.py).
#pragma once
#include "cuda_pipeline_primitives.h"
