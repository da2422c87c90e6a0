// What the environment asks of the simulator, read at every launch until it is latched, as it is in a program's process. There a
// kernel's mistake makes all later launches fail too, as it does on a GPU: a program cannot go on as if nothing had been.
//   STITCHCUDA_SIM_SCHEDULE  forward (default), reverse, or random:SEED: the order in which blocks and their threads start;
//                            with an odd seed the order of blocks is a backward one
//   STITCHCUDA_SIM_CHECK     1: shared memory and cudaMalloc start as NaN patterns (all bits set) instead of leftovers
//   STITCHCUDA_SIM_RETURNED  allow (default): a barrier or warp operation does not wait for threads that have returned, as
//                            hardware does; refuse: that is an error, because CUDA's documentation does not promise it
//   STITCHCUDA_SIM_THREADS   operating system threads that run blocks; default one per core
#pragma once

namespace stitchsim {

enum class Schedule { Forward, Reverse, Random };

struct Settings {
  Schedule schedule = Schedule::Forward;
  unsigned seed = 0;
  bool check = false;
  bool refuse_returned = false;
  unsigned threads = 1;
  bool latched = false;
};

__attribute__((visibility("default"))) Settings read_settings();

}  // namespace stitchsim

// For the Python side, by ctypes: from now on what the environment asks at this moment holds, whatever becomes of it.
extern "C" __attribute__((visibility("default"))) void stitchsim_latch();
