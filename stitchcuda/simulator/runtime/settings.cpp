#include "settings.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <string>
#include <thread>

namespace stitchsim {

namespace {
std::atomic<const Settings*> latched{nullptr};

Settings of_environment() {
  const auto value = [](const char* name) {
    const char* text = std::getenv(name);
    return std::string(text == nullptr ? "" : text);
  };
  Settings settings;
  const std::string schedule = value("STITCHCUDA_SIM_SCHEDULE");
  if (schedule == "reverse") settings.schedule = Schedule::Reverse;
  if (schedule.rfind("random", 0) == 0) {
    settings.schedule = Schedule::Random;
    if (schedule.size() > 7) settings.seed = static_cast<unsigned>(std::strtoul(schedule.c_str() + 7, nullptr, 10));
  }
  settings.check = value("STITCHCUDA_SIM_CHECK") == "1";
  settings.refuse_returned = value("STITCHCUDA_SIM_RETURNED") == "refuse";
  const std::string threads = value("STITCHCUDA_SIM_THREADS");
  const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
  settings.threads = threads.empty() ? cores : std::max(1ul, std::strtoul(threads.c_str(), nullptr, 10));
  return settings;
}
}  // namespace

Settings read_settings() {
  const Settings* const fixed = latched;
  return fixed != nullptr ? *fixed : of_environment();
}

}  // namespace stitchsim

void stitchsim_latch() {
  const stitchsim::Settings* none = nullptr;
  auto* const now = new stitchsim::Settings(stitchsim::of_environment());
  now->latched = true;
  if (!stitchsim::latched.compare_exchange_strong(none, now)) delete now;  // the first time counts
}
