// Which kernels were launched how often and on which memory, and which of them are switched off: counted here, below Python.
#pragma once

#include <cstddef>

namespace stitchsim {

// Counts a launch; false: the kernel is switched off and must not run. `text` is the launched expression ("scale<float>"), `code`
// lies in the module that launches it. `values` are its arguments, among which pointers are looked for. `looked_at` gets the
// place of a count: the kernel's accesses that were looked at for races (access_check.h). `often`: whether many were in earlier calls.
bool count_launch(const char* text, const void* code, const void* values, std::size_t bytes, unsigned long*& looked_at, bool& often);

}  // namespace stitchsim

// For the Python side, by ctypes. Kernels are named "module:expression", in the order in which they were first heard of.
extern "C" {
__attribute__((visibility("default"))) unsigned stitchsim_kernels();
__attribute__((visibility("default"))) const char* stitchsim_kernel_name(unsigned kernel);
__attribute__((visibility("default"))) unsigned long stitchsim_take_launches(unsigned kernel);  // since the last time
__attribute__((visibility("default"))) void stitchsim_skip(const char* name, int skip);         // also before its first launch
__attribute__((visibility("default"))) void stitchsim_know(const void* begin, unsigned long bytes);  // a tensor
__attribute__((visibility("default"))) unsigned long stitchsim_bytes();  // of known tensors given to kernels since they were taken
__attribute__((visibility("default"))) unsigned long stitchsim_take_bytes();  // the same; forgets them
}
