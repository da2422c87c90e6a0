// Runs the threads of one block: who goes next, who waits for what, and when waiting can never end.
//
// Every CUDA thread that has to wait gets a fiber of its own; threads that never wait run one after another on the same fiber,
// without any switch. A waiting thread hands over directly to the next one that can run. Nothing is preempted, so a block's
// execution is deterministic for a given schedule. One Block exists per operating system thread and is reused for every
// block of every grid; see grid.h for who feeds it.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "fiber.h"
#include "stitchsim/block.h"
#include "stitchsim/exchange.h"
#include "settings.h"

namespace stitchsim {

struct GridCall {
  dim3 grid, block;
  std::size_t dynamic_shared;
  const char* kernel;
  void (*thread)(const void* arguments);
  const void* arguments;
  Settings settings;
};

class Block {
 public:
  static bool inside();                       // whether the calling operating system thread is running a kernel
  static Block& current();                    // of the calling thread; raises std::logic_error outside of a kernel

  void prepare(const GridCall& call);         // once per grid
  bool run(uint3 index);                      // false: failed, see failure()
  const std::string& failure() const { return failure_; }

  // Called by kernels, on a fiber.
  int barrier(Vote vote, bool value);
  Meeting meet(Operation operation, unsigned mask, const void* value, unsigned bytes);
  unsigned converged_lanes(int site);
  void give_way();
  void begin_shared(void* variable, std::size_t bytes);
  [[noreturn]] void fail(const std::string& reason);

 private:
  enum class State : unsigned char { Fresh, Ready, Running, AtBarrier, AtMeeting, AtConvergence, Returned };

  struct Rendezvous {                         // of the lanes of one warp under one mask
    unsigned mask = 0, arrived = 0, generation = 0;
    Operation operation = Operation::Synchronize;
    unsigned present[2] = {0, 0};             // of the last two generations: a lane may read one while others fill the next
    Shown shown[2][32];
  };
  struct Warp {
    std::deque<Rendezvous> meetings;          // one per mask ever used; references stay valid
    Rendezvous* recent = nullptr;             // the one used last
    int open = 0;                             // meetings at which lanes wait
    unsigned returned = 0;                    // lanes
    unsigned lanes = 0;                       // that exist
  };

  static void fiber_main();
  void run_fresh_threads();
  Fiber& next();                              // chooses who goes on, and makes it the running thread
  void wait(State why);                       // of the running thread; returns when it was chosen again
  void make_ready(int thread);
  void become(int thread);
  void returned();
  Rendezvous& meeting_under(Warp& warp, unsigned mask);
  void check_complete(Warp& warp, int warp_index, Rendezvous& meeting);
  bool release_converged();
  void release_barrier();
  std::string where() const;
  std::string deadlock() const;

  GridCall call_{};
  int size_ = 0;
  std::vector<State> states_;
  std::vector<Fiber*> fibers_of_;             // by thread; null before its start
  std::vector<int> sites_;                    // by thread, while AtConvergence
  std::vector<unsigned> converged_;           // by thread: what converged_lanes returns
  std::vector<uint3> positions_;
  std::vector<int> order_;                    // in which threads start
  std::vector<Warp> warps_;
  std::vector<int> ready_;                    // a ring: threads that may go on, first come first served
  int ready_first_ = 0, ready_count_ = 0;
  int started_ = 0, returned_ = 0, at_barrier_ = 0;
  int votes_ = 0, result_count_ = 0, result_voters_ = 0;

  Fiber main_;
  Fiber* fiber_ = nullptr;                    // that runs now
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> idle_;
  std::unique_ptr<unsigned char[]> dynamic_;
  std::size_t static_bytes_ = 0;
  bool failed_ = false;
  std::string failure_;
};

}  // namespace stitchsim
