// What the environment asks of the simulator, read at every launch.
//   STITCHCUDA_SIM_SCHEDULE  forward (default), reverse, or random:SEED: the order in which blocks and their threads start
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
};

Settings read_settings();

}  // namespace stitchsim
