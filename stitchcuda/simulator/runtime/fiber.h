// A fiber: a stack that can be left in the middle of a function and continued later, by the same operating system thread.
//
// On x86-64 a switch is sixteen instructions; elsewhere ucontext does the same with system calls. Fibers know nothing of CUDA:
// see block.h.
#pragma once

#include <cstddef>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace stitchsim {

class Fiber {
 public:
  Fiber() = default;                                      // stands for the thread's own stack: only ever switched from and back to
  Fiber(void (*entry)(), std::size_t number);             // the number staggers stacks, which else would share cache sets
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;
  ~Fiber();

  void rewind();                                          // forgets what it was doing: the next switch calls `entry` afresh
  static void change(Fiber& from, Fiber& to);             // returns when somebody changes back to `from`

 private:
  void (*entry_)() = nullptr;
  std::size_t stagger_ = 0;
  char* memory_ = nullptr;                                // guard page, then the stack
#if defined(__x86_64__)
  void* stack_pointer_ = nullptr;
#else
  ucontext_t context_;
#endif
};

}  // namespace stitchsim
