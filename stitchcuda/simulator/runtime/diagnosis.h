// Words for diagnoses.
#pragma once

#include <string>

#include "stitchsim/exchange.h"

namespace stitchsim {

const char* name_of(Operation operation);
std::string in_hex(unsigned mask);

}  // namespace stitchsim
