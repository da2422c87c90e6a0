#include "block.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <random>
#include <stdexcept>

#include "diagnosis.h"
#include "access_check.h"

__thread uint3 threadIdx;
__thread uint3 blockIdx;
__thread dim3 blockDim;
__thread dim3 gridDim;

namespace stitchsim {

__thread Place here;

namespace {
// An H100's and H200's limits (CUDA programming guide, table of technical specifications, compute capability 9.0).
constexpr std::size_t kStaticShared = 48 * 1024;
constexpr std::size_t kSharedPerBlock = 227 * 1024;
constexpr std::size_t kSharedAlignment = 1024;

__thread Block* running = nullptr;

}  // namespace

bool Block::inside() { return running != nullptr; }

Block& Block::current() {
  if (running == nullptr) throw std::logic_error("a device function was called outside of a kernel");
  return *running;
}

void Block::prepare(const GridCall& call) {
  call_ = call;
  const int size = static_cast<int>(call.block.x * call.block.y * call.block.z);
  size_ = size;
  states_.assign(size, State::Fresh);
  fibers_of_.assign(size, nullptr);
  sites_.assign(size, 0);
  converged_.assign(size, 0);
  positions_.resize(size);
  order_.resize(size);
  ready_.resize(size);
  warps_.clear();
  warps_.resize((size + 31) / 32);
  for (int i = 0; i < size; i++) {
    const unsigned x = i % call.block.x, rest = i / call.block.x;
    positions_[i] = {x, rest % call.block.y, rest / call.block.y};
    order_[i] = call.settings.schedule == Schedule::Reverse ? size - 1 - i : i;
    warps_[i / 32].lanes |= 1u << (i % 32);
  }
  if (call.settings.schedule == Schedule::Random) {
    std::mt19937 generator(call.settings.seed);
    std::shuffle(order_.begin(), order_.end(), generator);
  }
  if (!dynamic_) dynamic_.reset(new unsigned char[kSharedPerBlock + kSharedAlignment]);
  const auto start = reinterpret_cast<std::uintptr_t>(dynamic_.get());
  here.dynamic_shared = dynamic_.get() + (kSharedAlignment - start % kSharedAlignment) % kSharedAlignment;
  blockDim = call.block;
  gridDim = call.grid;
}

bool Block::run(uint3 index) {
  blockIdx = index;
  here.block_serial++;
  std::fill(states_.begin(), states_.end(), State::Fresh);
  for (Warp& warp : warps_) {
    warp.returned = 0;
    if (warp.open == 0) continue;  // true but after a failure
    for (Rendezvous& meeting : warp.meetings) meeting.arrived = 0;
    warp.open = 0;
  }
  ready_first_ = ready_count_ = 0;
  started_ = returned_ = at_barrier_ = votes_ = 0;
  static_bytes_ = 0;
  failed_ = false;
  if (call_.settings.check) std::memset(here.dynamic_shared, 0xff, call_.dynamic_shared);

  if (call_.settings.check) {
    const auto dynamic = reinterpret_cast<std::uintptr_t>(here.dynamic_shared);
    begin_block_check(here.block_serial, {dynamic, dynamic + kSharedPerBlock}, call_.dynamic_shared);
  }
  running = this;
  fiber_ = &main_;
  while (returned_ < size_ && !failed_) {
    Fiber& to = next();
    if (&to != &main_) {
      fiber_ = &to;
      Fiber::change(main_, to);
    } else if (release_converged()) {
      continue;
    } else if (at_barrier_ > 0 && at_barrier_ + returned_ == size_ && (returned_ == 0 || !call_.settings.refuse_returned)) {
      release_barrier();
    } else {
      failed_ = true;
      failure_ = deadlock();
    }
  }
  running = nullptr;
  end_block_check();
  if (failed_) {  // whatever the threads were doing is abandoned
    idle_.clear();
    for (auto& fiber : fibers_) {
      fiber->rewind();
      idle_.push_back(fiber.get());
    }
  }
  return !failed_;
}

// ---- scheduling -----------------------------------------------------------------------------------------------------

void Block::fiber_main() {
  for (;;) {
    Block& block = *running;
    block.run_fresh_threads();
    Fiber& self = *block.fiber_;
    block.idle_.push_back(&self);
    Fiber& to = block.next();
    if (&to == &self) continue;
    block.fiber_ = &to;
    Fiber::change(self, to);
  }
}

void Block::run_fresh_threads() {
  while (started_ < size_) {
    become(order_[started_++]);
    try {
      call_.thread(call_.arguments);
    } catch (const std::exception& error) {
      fail(std::string("a C++ exception left the kernel: ") + error.what());
    } catch (...) {
      fail("a C++ exception left the kernel");
    }
    returned();
  }
}

Fiber& Block::next() {
  if (ready_count_ > 0) {
    const int thread = ready_[ready_first_];
    if (++ready_first_ == size_) ready_first_ = 0;
    ready_count_--;
    become(thread);
    return *fibers_of_[thread];
  }
  if (started_ == size_) return main_;
  if (idle_.empty()) {
    fibers_.push_back(std::make_unique<Fiber>(&Block::fiber_main, fibers_.size()));
    return *fibers_.back();
  }
  Fiber* fiber = idle_.back();
  idle_.pop_back();
  return *fiber;
}

void Block::become(int thread) {
  states_[thread] = State::Running;
  threadIdx = positions_[thread];
  here.thread = thread;
  here.lane = thread & 31;
  here.warp = thread >> 5;
}

void Block::wait(State why) {
  states_[here.thread] = why;
  Fiber& self = *fiber_;
  fibers_of_[here.thread] = &self;
  Fiber& to = next();
  if (&to == &self) return;
  fiber_ = &to;
  Fiber::change(self, to);
}

void Block::make_ready(int thread) {
  states_[thread] = State::Ready;
  const int end = ready_first_ + ready_count_++;
  ready_[end < size_ ? end : end - size_] = thread;
}

void Block::returned() {
  states_[here.thread] = State::Returned;
  returned_++;
  Warp& warp = warps_[here.warp];
  warp.returned |= 1u << here.lane;
  if (warp.open == 0) return;
  for (Rendezvous& meeting : warp.meetings)
    if (meeting.arrived != 0) check_complete(warp, here.warp, meeting);
}

void Block::give_way() {
  make_ready(here.thread);
  wait(State::Ready);
}

// ---- barriers -------------------------------------------------------------------------------------------------------

int Block::barrier(Vote vote, bool value) {
  at_barrier_++;
  votes_ += value;
  wait(State::AtBarrier);
  switch (vote) {
    case Vote::Count: return result_count_;
    case Vote::All: return result_count_ == result_voters_;
    default: return result_count_ != 0;
  }
}

void Block::release_barrier() {
  result_count_ = votes_;
  result_voters_ = at_barrier_;
  votes_ = at_barrier_ = 0;
  pass_barrier();
  for (int thread : order_)
    if (states_[thread] == State::AtBarrier) make_ready(thread);
}

// ---- warp operations ------------------------------------------------------------------------------------------------

Meeting Block::meet(Operation operation, unsigned mask, const void* value, unsigned bytes) {
  Warp& warp = warps_[here.warp];
  const int lane = here.lane;
  if (!(mask >> lane & 1)) fail(std::string(name_of(operation)) + " with mask " + in_hex(mask) + " is called by a lane outside it");
  Rendezvous& meeting = meeting_under(warp, mask);
  if (meeting.arrived == 0) {
    meeting.operation = operation;
    warp.open++;
  } else if (meeting.operation != operation) {
    fail("lanes of warp " + std::to_string(here.warp) + " meet at different operations, " + name_of(meeting.operation) + " and " +
         name_of(operation) + ", under mask " + in_hex(mask));
  }
  const unsigned turn = meeting.generation & 1;
  std::memcpy(&meeting.shown[turn][lane], value, bytes);
  meeting.arrived |= 1u << lane;
  states_[here.thread] = State::AtMeeting;
  check_complete(warp, here.warp, meeting);
  if (states_[here.thread] == State::AtMeeting) wait(State::AtMeeting);
  return {meeting.present[turn], meeting.shown[turn]};
}

Block::Rendezvous& Block::meeting_under(Warp& warp, unsigned mask) {
  if (warp.recent != nullptr && warp.recent->mask == mask) return *warp.recent;
  for (Rendezvous& one : warp.meetings) {
    if (one.mask != mask) continue;
    warp.recent = &one;
    return one;
  }
  warp.meetings.emplace_back();
  warp.recent = &warp.meetings.back();
  warp.recent->mask = mask;
  return *warp.recent;
}

// Lets the lanes go on once all that can still come have come.
void Block::check_complete(Warp& warp, int warp_index, Rendezvous& meeting) {
  const unsigned expected = meeting.mask & warp.lanes;
  const unsigned gone = expected & warp.returned;
  if (gone != 0 && call_.settings.refuse_returned)
    fail("lanes " + in_hex(meeting.arrived) + " of warp " + std::to_string(warp_index) + " are at " + name_of(meeting.operation) +
         " with mask " + in_hex(meeting.mask) + ", but lanes " + in_hex(gone) +
         " of that mask have returned; let every lane in the mask reach it, or leave them out of the mask");
  if ((meeting.arrived & (expected & ~gone)) != (expected & ~gone)) return;
  meeting.present[meeting.generation & 1] = meeting.arrived;
  const unsigned arrived = meeting.arrived;
  meeting.arrived = 0;
  meeting.generation++;
  warp.open--;
  pass_warp_operation(warp_index);
  for (int lane = 0; lane < 32; lane++) {
    const int thread = warp_index * 32 + lane;
    if (!(arrived >> lane & 1)) continue;
    if (thread == here.thread) states_[thread] = State::Running;
    else make_ready(thread);
  }
}

unsigned Block::converged_lanes(int site) {
  sites_[here.thread] = site;
  wait(State::AtConvergence);
  return converged_[here.thread];
}

// Nothing else can run: the lanes of a warp that wait at one place are as converged as they will ever be.
bool Block::release_converged() {
  bool any = false;
  for (std::size_t warp = 0; warp < warps_.size(); warp++) {
    const int first = static_cast<int>(warp) * 32, last = std::min(size_, first + 32);
    int leader = first;
    while (leader < last && states_[leader] != State::AtConvergence) leader++;
    if (leader == last) continue;
    unsigned lanes = 0;
    for (int thread = leader; thread < last; thread++)
      if (states_[thread] == State::AtConvergence && sites_[thread] == sites_[leader]) lanes |= 1u << (thread - first);
    for (int thread = leader; thread < last; thread++)
      if (lanes >> (thread - first) & 1) {
        converged_[thread] = lanes;
        make_ready(thread);
      }
    any = true;
  }
  return any;
}

// ---- shared memory and errors ---------------------------------------------------------------------------------------

void Block::begin_shared(void* variable, std::size_t bytes) {
  static_bytes_ += bytes;
  if (static_bytes_ > kStaticShared)
    fail("static shared memory exceeds " + std::to_string(kStaticShared) + " bytes; use dynamic shared memory for more");
  if (static_bytes_ + call_.dynamic_shared > kSharedPerBlock)
    fail("static and dynamic shared memory together exceed " + std::to_string(kSharedPerBlock) + " bytes");
  if (call_.settings.check) std::memset(variable, 0xff, bytes);
  know_shared(variable, bytes);
}

void Block::fail(const std::string& reason) {
  failed_ = true;
  failure_ = where() + ", thread (" + std::to_string(threadIdx.x) + ", " + std::to_string(threadIdx.y) + ", " +
             std::to_string(threadIdx.z) + "): " + reason;
  Fiber& self = *fiber_;
  fiber_ = &main_;
  Fiber::change(self, main_);
  std::terminate();  // never: nobody changes back to a failed fiber
}

// ---- what kernels call ----------------------------------------------------------------------------------------------

int barrier(Vote vote, bool value) { return Block::current().barrier(vote, value); }
Meeting meet(Operation operation, unsigned mask, const void* value, unsigned bytes) {
  return Block::current().meet(operation, mask, value, bytes);
}
unsigned converged_lanes(int site) { return Block::current().converged_lanes(site); }
void give_way() { Block::current().give_way(); }
void begin_shared(void* variable, std::size_t bytes) { Block::current().begin_shared(variable, bytes); }
bool inside_kernel() { return Block::inside(); }
void fail(const char* reason) { Block::current().fail(reason); }

}  // namespace stitchsim
