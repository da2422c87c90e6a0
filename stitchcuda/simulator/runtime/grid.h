// Runs grids: checks a launch's configuration as a GPU would, spreads its blocks over operating system threads, collects failures.
#pragma once

#include <cuda_runtime_api.h>

#include <condition_variable>
#include <functional>
#include <mutex>

namespace stitchsim {

// Operating system threads that wait for work. They are started once and live as long as the process.
class Crew {
 public:
  static Crew& shared();
  void run(unsigned members, const std::function<void()>& work);  // on the caller and members - 1 others; returns when all are done

 private:
  void member();

  std::mutex mutex_;
  std::condition_variable wake_, done_;
  const std::function<void()>* work_ = nullptr;
  unsigned started_ = 0, wanted_ = 0, busy_ = 0;
};

// The last CUDA error, shared by all modules of the process as in CUDA.
__attribute__((visibility("default"))) cudaError_t take_last_error();
__attribute__((visibility("default"))) cudaError_t peek_last_error();
__attribute__((visibility("default"))) cudaError_t record_error(cudaError_t error);  // returns it

// Dynamic shared memory per block that cudaFuncSetAttribute has allowed; any kernel's permission counts for all.
__attribute__((visibility("default"))) void allow_dynamic_shared(std::size_t bytes);

}  // namespace stitchsim

// For the Python side, by ctypes.
extern "C" {
__attribute__((visibility("default"))) unsigned long stitchsim_launches();  // grids run to the end in this process
__attribute__((visibility("default"))) unsigned long stitchsim_blocks();    // blocks of them
// Says why the first launch failed that did so since the last call, for its configuration or a mistake; "" if none did.
__attribute__((visibility("default"))) const char* stitchsim_take_failed();
// Says which kernel was the first since the last call to read shared memory that its block has not written; "" if none did.
__attribute__((visibility("default"))) const char* stitchsim_take_unwritten();
}
