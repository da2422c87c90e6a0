#include "grid.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "access_check.h"
#include "block.h"
#include "device_memory.h"
#include "diagnosis.h"
#include "kernels.h"
#include "protection.h"
#include "stitchsim/launch.h"

namespace stitchsim {

namespace {
// Limits of compute capability 9.0.
constexpr unsigned kThreads = 1024, kThreadsZ = 64, kGridYZ = 65535, kGridX = 0x7fffffff;
constexpr std::size_t kSharedByDefault = 48 * 1024, kSharedOptIn = 227 * 1024;

thread_local cudaError_t last_error = cudaSuccess;
std::atomic<std::size_t> allowed_dynamic_shared{kSharedByDefault};
std::atomic<unsigned long> launches{0}, blocks{0};

std::mutex failed_mutex;
std::string failed;   // why the first launch that failed since `stitchsim_take_failed` did so
std::string unwritten;  // what the first launch read since `stitchsim_take_unwritten` that did so
std::string mistake;  // of an earlier launch, where settings are latched

[[noreturn]] void end_with(const std::string& failure, const Settings& settings) {
  const std::lock_guard<std::mutex> lock(failed_mutex);
  if (settings.latched && mistake.empty()) mistake = failure;
  if (failed.empty()) failed = failure;
  throw std::runtime_error("simulator: " + failure);
}

void check_for_earlier_mistake() {
  const std::lock_guard<std::mutex> lock(failed_mutex);
  if (mistake.empty()) return;
  if (failed.empty()) failed = mistake;
  throw std::runtime_error("simulator: after a mistake no kernel can be launched: " + mistake);
}

cudaError_t judge(const Config& config) {
  const dim3 grid = config.grid, block = config.block;
  const auto threads = static_cast<unsigned long long>(block.x) * block.y * block.z;
  if (threads == 0 || threads > kThreads || block.z > kThreadsZ) return cudaErrorInvalidConfiguration;
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return cudaErrorInvalidConfiguration;
  if (grid.x > kGridX || grid.y > kGridYZ || grid.z > kGridYZ) return cudaErrorInvalidConfiguration;
  if (config.dynamic_shared > allowed_dynamic_shared) return cudaErrorInvalidValue;
  return cudaSuccess;
}

void note_refused(const Config& config, const char* kernel, cudaError_t error) {
  const std::lock_guard<std::mutex> lock(failed_mutex);
  if (failed.empty()) failed = describe_refused(config, kernel, error, allowed_dynamic_shared);
}

// Blocks are handed out in runs, so that the counter is not fought over and neighbours share a cache.
class Blocks {
 public:
  Blocks(dim3 grid, Settings settings, unsigned members)
      : grid_(grid), total_(static_cast<unsigned long long>(grid.x) * grid.y * grid.z),
        run_(std::max<unsigned long long>(1, std::min<unsigned long long>(64, total_ / (members * 8)))) {
    backwards_ = settings.schedule == Schedule::Reverse;
    if (settings.schedule != Schedule::Random) return;
    std::mt19937_64 generator(settings.seed);
    shift_ = generator() % total_;
    backwards_ = settings.seed % 2 != 0;
  }

  bool take(unsigned long long& first, unsigned long long& last) {
    first = taken_.fetch_add(run_);
    last = std::min(total_, first + run_);
    return first < total_;
  }

  uint3 index(unsigned long long ordinal) const {
    if (backwards_) ordinal = total_ - 1 - ordinal;
    ordinal = (ordinal + shift_) % total_;
    const unsigned long long rest = ordinal / grid_.x;
    return {static_cast<unsigned>(ordinal % grid_.x), static_cast<unsigned>(rest % grid_.y), static_cast<unsigned>(rest / grid_.y)};
  }

  unsigned long long total() const { return total_; }
  void stop() { taken_ = total_; }

 private:
  dim3 grid_;
  bool backwards_ = false;
  unsigned long long total_, run_, shift_ = 0;
  std::atomic<unsigned long long> taken_{0};
};
}  // namespace

void run_grid(const Config& config, const char* kernel, void (*thread)(const void*), const void* arguments, const void* values,
              std::size_t bytes) {
  if (Block::inside()) fail("a kernel was launched from a kernel; the simulator has no dynamic parallelism");
  if (const cudaError_t error = record_error(judge(config)); error != cudaSuccess) return note_refused(config, kernel, error);
  check_for_earlier_mistake();
  const Open open;
  unsigned long* looked_at = nullptr;
  bool often = false;
  if (!count_launch(kernel, reinterpret_cast<const void*>(thread), values, bytes, looked_at, often)) {
    launches++;
    return;
  }

  const Settings settings = read_settings();
  static std::mutex one_check_at_a_time;
  std::unique_lock<std::mutex> checks(one_check_at_a_time, std::defer_lock);
  const unsigned long most = often ? kLater : kMost;
  const bool races = settings.check && *looked_at < most;
  if (settings.check) {
    checks.lock();
    begin_access_check(races ? most - *looked_at : 0);
  }
  const Watch protected_memory(values, bytes);
  const GridCall call{config.grid, config.block, config.dynamic_shared, kernel, thread, arguments, settings};
  const auto total = static_cast<unsigned long long>(config.grid.x) * config.grid.y * config.grid.z;
  const unsigned members = races ? 1 : static_cast<unsigned>(std::min<unsigned long long>(call.settings.threads, total));
  Blocks queue(config.grid, call.settings, members);
  std::mutex mutex;
  std::string failure;

  const auto give_up = [&](const std::string& reason) {
    queue.stop();
    const std::lock_guard<std::mutex> lock(mutex);
    if (failure.empty()) failure = reason;
  };
  Crew::shared().run(members, [&] {
    static thread_local std::unique_ptr<Block> mine;  // keeps its fibers from grid to grid
    try {
      if (mine == nullptr) mine = std::make_unique<Block>();
      Block& block = *mine;
      block.prepare(call);
      unsigned long long first, last;
      while (queue.take(first, last))
        for (; first < last; first++)
          if (!block.run(queue.index(first))) return give_up(block.failure());
    } catch (const std::exception& error) {  // no memory for stacks, say
      give_up(error.what());
    }
  });
  if (settings.check) {
    *looked_at += end_access_check();
    if (const std::string mistake = found_mistake(); failure.empty() && !mistake.empty()) failure = std::string("kernel ") + kernel + " " + mistake;
    const std::lock_guard<std::mutex> lock(failed_mutex);
    if (const std::string read = found_unwritten(); unwritten.empty() && !read.empty()) unwritten = std::string("kernel ") + kernel + " " + read;
  }
  // Also after a failure: what lies behind the memory is restored.
  if (const std::string overrun = find_overrun(values, bytes); failure.empty() && !overrun.empty())
    failure = std::string("kernel ") + kernel + " " + overrun;
  if (failure.empty() && protected_memory.changed())
    failure = std::string("kernel ") + kernel +
        " writes into an input or parameter that the reference leaves alone: write to memory of its own";
  if (!failure.empty()) end_with(failure, settings);
  launches++;
  blocks += total;
}

// ---- threads --------------------------------------------------------------------------------------------------------

Crew& Crew::shared() {
  // Never destroyed: its threads may outlive static destructors. A forked child has none of them and starts anew.
  static std::mutex mutex;
  static Crew* crew = nullptr;
  static pid_t owner = 0;
  const std::lock_guard<std::mutex> lock(mutex);
  if (crew == nullptr || owner != getpid()) {
    crew = new Crew;
    owner = getpid();
  }
  return *crew;
}

void Crew::run(unsigned members, const std::function<void()>& work) {
  static std::mutex one_grid_at_a_time;
  const std::lock_guard<std::mutex> grid(one_grid_at_a_time);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (; started_ + 1 < members; started_++) std::thread(&Crew::member, this).detach();
    work_ = &work;
    wanted_ = members - 1;
  }
  if (members > 1) wake_.notify_all();
  work();
  std::unique_lock<std::mutex> lock(mutex_);
  wanted_ = 0;  // who has not woken by now is not needed any more
  done_.wait(lock, [this] { return busy_ == 0; });
}

void Crew::member() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return wanted_ > 0; });
    wanted_--;
    busy_++;
    const std::function<void()>& work = *work_;
    lock.unlock();
    work();
    lock.lock();
    if (--busy_ == 0) done_.notify_one();
  }
}

// ---- state ----------------------------------------------------------------------------------------------------------

cudaError_t record_error(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

cudaError_t peek_last_error() { return last_error; }

cudaError_t take_last_error() {
  const cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}

void allow_dynamic_shared(std::size_t bytes) {
  std::size_t before = allowed_dynamic_shared;
  const std::size_t wanted = std::min(bytes, kSharedOptIn);
  while (before < wanted && !allowed_dynamic_shared.compare_exchange_weak(before, wanted)) {
  }
}

}  // namespace stitchsim

unsigned long stitchsim_launches() { return stitchsim::launches; }
unsigned long stitchsim_blocks() { return stitchsim::blocks; }

namespace {
const char* take(std::string& text) {
  static thread_local std::string taken;
  const std::lock_guard<std::mutex> lock(stitchsim::failed_mutex);
  taken = std::move(text);
  text.clear();
  return taken.c_str();
}
}  // namespace
const char* stitchsim_take_failed() { return take(stitchsim::failed); }
const char* stitchsim_take_unwritten() { return take(stitchsim::unwritten); }
