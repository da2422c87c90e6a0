// Kernel launches. The rewriter turns
//     kernel<T><<<grid, block, bytes, stream>>>(a, b)    into    STITCHSIM_LAUNCH((kernel<T>), (grid, block, bytes, stream))(a, b)
// so that overloads, deduced template arguments and default arguments work as in CUDA. Launches return when the grid is done.
#pragma once
#include <cuda_runtime.h>

#include <cstddef>
#include <tuple>
#include <utility>

namespace stitchsim {

struct Config {
  dim3 grid;
  dim3 block;
  std::size_t dynamic_shared;
  Config(dim3 grid, dim3 block, std::size_t dynamic_shared = 0, cudaStream_t = nullptr)
      : grid(grid), block(block), dynamic_shared(dynamic_shared) {}
};

// Runs `thread(arguments)` for every thread of the grid. A configuration that a GPU refuses becomes the last CUDA error and
// nothing runs; a kernel that fails (deadlock, assertion, trap) raises std::runtime_error here. `values` are the kernel's arguments
// as they lie in memory: pointers among them say which tensors it was given (kernels.h).
void run_grid(const Config& config, const char* kernel, void (*thread)(const void* arguments), const void* arguments,
              const void* values, std::size_t bytes);

template <class Kernel> struct Launch {
  Config config;
  const char* name;
  Kernel kernel;

  template <class... Args> void operator()(Args... args) const {
    struct Call {
      const Kernel& kernel;
      std::tuple<Args...> arguments;
    };
    const Call call{kernel, std::tuple<Args...>(std::move(args)...)};
    run_grid(
        config, name,
        [](const void* raw) {
          const Call& call = *static_cast<const Call*>(raw);
          std::apply(call.kernel, call.arguments);
        },
        &call, &call.arguments, sizeof call.arguments);
  }
};
template <class Kernel> Launch<Kernel> make_launch(Config config, const char* name, Kernel kernel) { return {config, name, kernel}; }

}  // namespace stitchsim

#define STITCHSIM_UNWRAP(...) __VA_ARGS__
#define STITCHSIM_TEXT_OF(...) #__VA_ARGS__
#define STITCHSIM_LAUNCH(KERNEL, CONFIG)                                                         \
  ::stitchsim::make_launch(::stitchsim::Config CONFIG, STITCHSIM_TEXT_OF KERNEL,                 \
                           [&](const auto&... stitchsim_args) { STITCHSIM_UNWRAP KERNEL(stitchsim_args...); })
