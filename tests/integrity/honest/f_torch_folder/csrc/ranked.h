#pragma once
#include <torch/extension.h>

torch::Tensor ranked(torch::Tensor x);
