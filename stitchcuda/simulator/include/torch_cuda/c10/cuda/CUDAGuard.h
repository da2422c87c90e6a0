// Stands in front of torch's header of this name.
#pragma once
#include "stitchsim/torch_cuda.h"
