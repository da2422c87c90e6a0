// Barriers and shared memory of a block. The runtime's side is runtime/block.cpp.
#pragma once
#include <cstddef>

#include "thread.h"

namespace stitchsim {

enum class Vote { Count, All, Any };

// Waits for every thread of the block and returns the vote over `value`.
int barrier(Vote vote, bool value);

// A shared variable begins its life in this block: accounts for its size, and poisons it when checks are on.
void begin_shared(void* variable, std::size_t bytes);

template <class T> using Same = T;  // names an array type where C++ wants a type name
template <class T> T* dynamic_shared() { return reinterpret_cast<T*>(here.dynamic_shared); }

bool inside_kernel();

// Ends the launch with an error that names kernel, block and thread.
[[noreturn]] void fail(const char* reason);

}  // namespace stitchsim

// The rewriter puts this after the declaration of a __shared__ variable. Blocks that run at the same time run on different
// operating system threads, so thread_local storage gives each its own copy.
#define STITCHSIM_BEGIN_SHARED(variable)                                               \
  {                                                                                    \
    static thread_local unsigned long stitchsim_serial = 0;                            \
    if (stitchsim_serial != ::stitchsim::here.block_serial) {                          \
      stitchsim_serial = ::stitchsim::here.block_serial;                               \
      ::stitchsim::begin_shared((void*)&(variable), sizeof(variable));                 \
    }                                                                                  \
  }

inline void __syncthreads() { stitchsim::barrier(stitchsim::Vote::Any, false); }
inline int __syncthreads_count(int predicate) { return stitchsim::barrier(stitchsim::Vote::Count, predicate != 0); }
inline int __syncthreads_and(int predicate) { return stitchsim::barrier(stitchsim::Vote::All, predicate != 0); }
inline int __syncthreads_or(int predicate) { return stitchsim::barrier(stitchsim::Vote::Any, predicate != 0); }

inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_block() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
[[noreturn]] inline void __trap() { stitchsim::fail("__trap() was called"); }
