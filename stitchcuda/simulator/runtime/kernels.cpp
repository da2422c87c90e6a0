#include "kernels.h"

#include "access_check.h"

#include <dlfcn.h>

#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>

namespace stitchsim {

namespace {
constexpr std::size_t kTable = 64 * 1024;  // tensors up to this size may be tables of pointers, as grouped kernels take them

struct Kernel {
  std::string name;
  unsigned long launches = 0;
  unsigned long looked_at = 0;           // accesses among which races were looked for, in this call
  unsigned long before = 0;              // and in calls before it
  bool skip = false;
};

// Never destroyed: launches may come from static destructors.
struct Book {
  std::mutex mutex;
  std::deque<Kernel> kernels;
  std::map<std::string, Kernel*> by_name;
  std::map<std::pair<const void*, const char*>, Kernel*> by_launch;
  std::map<std::uintptr_t, std::uintptr_t> tensors;  // begin to end
  unsigned long bytes = 0;
};
Book& book() {
  static Book& one = *new Book;
  return one;
}

Kernel& named(Book& book, const std::string& name) {
  Kernel*& found = book.by_name[name];
  if (found == nullptr) {
    book.kernels.push_back({name});
    found = &book.kernels.back();
  }
  return *found;
}

Kernel& launched(Book& book, const char* text, const void* code) {
  Kernel*& found = book.by_launch[{code, text}];
  if (found == nullptr) {
    Dl_info info{};
    std::string module = dladdr(code, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : "";
    module = module.substr(module.rfind('/') + 1);
    found = &named(book, module.substr(0, module.rfind('.')) + ":" + text);
  }
  return *found;
}

using Ranges = std::set<std::pair<std::uintptr_t, std::uintptr_t>>;

void find_tensors(const Book& book, const void* values, std::size_t bytes, bool tables, Ranges& found) {
  for (std::size_t at = 0; at + sizeof(std::uintptr_t) <= bytes; at += sizeof(std::uintptr_t)) {
    std::uintptr_t value;
    std::memcpy(&value, static_cast<const char*>(values) + at, sizeof value);
    auto next = book.tensors.upper_bound(value);
    if (next == book.tensors.begin()) continue;
    const std::uintptr_t end = (--next)->second;
    if (value >= end || !found.insert({value, end}).second) continue;
    if (tables && end - value <= kTable && value % sizeof value == 0)
      find_tensors(book, reinterpret_cast<const void*>(value), end - value, false, found);
  }
}
}  // namespace

bool count_launch(const char* text, const void* code, const void* values, std::size_t bytes, unsigned long*& looked_at, bool& often) {
  Book& all = book();
  const std::lock_guard<std::mutex> lock(all.mutex);
  Kernel& kernel = launched(all, text, code);
  kernel.launches++;
  looked_at = &kernel.looked_at;         // a deque's elements stay where they are
  often = kernel.before >= kManyCalls * kMost;
  if (!all.tensors.empty()) {
    Ranges found;
    find_tensors(all, values, bytes, true, found);
    for (const auto& [begin, end] : found) all.bytes += end - begin;
  }
  return !kernel.skip;
}

}  // namespace stitchsim

using stitchsim::book;

unsigned stitchsim_kernels() {
  const std::lock_guard<std::mutex> lock(book().mutex);
  return static_cast<unsigned>(book().kernels.size());
}
const char* stitchsim_kernel_name(unsigned kernel) {
  const std::lock_guard<std::mutex> lock(book().mutex);
  return kernel < book().kernels.size() ? book().kernels[kernel].name.c_str() : "";
}
unsigned long stitchsim_take_launches(unsigned kernel) {
  const std::lock_guard<std::mutex> lock(book().mutex);
  if (kernel >= book().kernels.size()) return 0;
  const unsigned long counted = book().kernels[kernel].launches;
  book().kernels[kernel].launches = 0;
  return counted;
}
void stitchsim_skip(const char* name, int skip) {
  const std::lock_guard<std::mutex> lock(book().mutex);
  stitchsim::named(book(), name).skip = skip != 0;
}
void stitchsim_know(const void* begin, unsigned long bytes) {
  const std::lock_guard<std::mutex> lock(book().mutex);
  const auto at = reinterpret_cast<std::uintptr_t>(begin);
  if (bytes != 0) book().tensors[at] = at + bytes;
}

unsigned long stitchsim_bytes() {
  const std::lock_guard<std::mutex> lock(book().mutex);
  return book().bytes;
}
unsigned long stitchsim_take_bytes() {
  const std::lock_guard<std::mutex> lock(book().mutex);
  const unsigned long counted = book().bytes;
  book().bytes = 0;
  book().tensors.clear();
  for (stitchsim::Kernel& kernel : book().kernels) {
    kernel.before += kernel.looked_at;
    kernel.looked_at = 0;
  }
  return counted;
}
