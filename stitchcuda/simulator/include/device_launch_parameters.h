// Stands in front of NVIDIA's header of this name, whose declarations of threadIdx and the like thread.h replaces.
#pragma once
