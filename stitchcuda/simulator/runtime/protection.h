// Memory that no kernel may change: a program's inputs and parameters, as far as the reference leaves them alone.
//
// A program could use them as scratch memory and put them back before its call ends. So each launch is looked at alone: what its
// arguments point to in protected memory is copied before and compared after it. What one kernel changes and puts back itself is
// not seen.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace stitchsim {

class Watch {
 public:
  Watch(const void* values, std::size_t bytes);  // a launch's arguments, as they lie in memory
  bool changed() const;

 private:
  std::vector<std::pair<const char*, std::vector<char>>> held_;
};

}  // namespace stitchsim

extern "C" {
__attribute__((visibility("default"))) void stitchsim_protect(const void* begin, unsigned long bytes);
__attribute__((visibility("default"))) void stitchsim_protect_nothing();
}
