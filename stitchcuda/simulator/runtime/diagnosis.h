// Words for diagnoses.
#pragma once

#include <string>

#include "stitchsim/exchange.h"
#include "stitchsim/launch.h"

namespace stitchsim {

const char* name_of(Operation operation);
std::string in_hex(unsigned mask);
// Why a launch is refused; `allowed`: bytes of dynamic shared memory that a block may have now.
std::string describe_refused(const Config& config, const char* kernel, cudaError_t error, std::size_t allowed);

}  // namespace stitchsim
