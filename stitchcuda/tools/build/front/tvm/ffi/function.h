#pragma once
#include <stitchcuda_tvm_front.h>
