#include "fiber.h"

#include <sys/mman.h>

#include <cstdint>
#include <new>

namespace stitchsim {

namespace {
constexpr std::size_t kStack = 256 * 1024;  // address space; only touched pages cost memory
constexpr std::size_t kGuard = 4096;        // an overflow faults instead of running into a neighbour
}  // namespace

#if defined(__x86_64__)
// Saves the registers that the System V ABI wants preserved, swaps stacks, restores. The rounding mode is not switched: no
// intrinsic leaves it changed.
extern "C" void stitchsim_change_stack(void** save, void* restore);
asm(R"(
.text
.globl stitchsim_change_stack
.hidden stitchsim_change_stack
.type stitchsim_change_stack,@function
stitchsim_change_stack:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size stitchsim_change_stack, .-stitchsim_change_stack
)");
#endif

Fiber::Fiber(void (*entry)(), std::size_t number) : entry_(entry), stagger_(number % 31 * 128) {
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* memory = mmap(nullptr, kGuard + kStack, PROT_READ | PROT_WRITE, flags, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  memory_ = static_cast<char*>(memory);
  mprotect(memory_, kGuard, PROT_NONE);  // best effort: without the guard an overflow is merely found later
  rewind();
}

Fiber::~Fiber() {
  if (memory_ != nullptr) munmap(memory_, kGuard + kStack);
}

#if defined(__x86_64__)

void Fiber::rewind() {
  // What stitchsim_change_stack pops: six registers, then the address it returns to. The entry must see the stack as after a
  // call, that is 8 bytes below a multiple of 16; its own return address is null, where unwinders stop.
  auto top = reinterpret_cast<std::uintptr_t>(memory_ + kGuard + kStack) - stagger_;
  auto** slot = reinterpret_cast<void**>(top & ~std::uintptr_t(15));
  *--slot = nullptr;
  *--slot = reinterpret_cast<void*>(entry_);
  for (int i = 0; i < 6; i++) *--slot = nullptr;
  stack_pointer_ = slot;
}

void Fiber::change(Fiber& from, Fiber& to) { stitchsim_change_stack(&from.stack_pointer_, to.stack_pointer_); }

#else

void Fiber::rewind() {
  getcontext(&context_);
  context_.uc_stack.ss_sp = memory_ + kGuard;
  context_.uc_stack.ss_size = kStack - stagger_;
  context_.uc_link = nullptr;
  makecontext(&context_, entry_, 0);
}

void Fiber::change(Fiber& from, Fiber& to) { swapcontext(&from.context_, &to.context_); }

#endif

}  // namespace stitchsim
