// assert() in a kernel ends the launch with an error instead of the process. Linked into every module with hidden visibility, so
// that only the module's own assertions come here.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "grid.h"
#include "stitchsim/block.h"

extern "C" __attribute__((visibility("hidden"), noreturn)) void __assert_fail(const char* expression, const char* file, unsigned line,
                                                                             const char* function) noexcept {
  const std::string what = std::string(file) + ":" + std::to_string(line) + ": " + function + ": assertion `" + expression + "` failed";
  if (stitchsim::inside_kernel()) stitchsim::fail(what.c_str());
  std::fprintf(stderr, "%s\n", what.c_str());
  std::abort();
}
