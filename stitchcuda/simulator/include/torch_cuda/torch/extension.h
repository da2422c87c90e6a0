// Stands in front of torch's header of this name, which also reads all of torch::nn, at three times the cost (see stitchsim/torch.h).
#pragma once
#include "stitchsim/torch.h"
