#include "device_memory.h"

#include <dlfcn.h>
#include <link.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace stitchsim {

namespace {
using Address = std::uintptr_t;

constexpr Address kBase = 0x2000'0000'0000;      // far from where the system puts programs, libraries and stacks
constexpr Address kApart = 1ul << 40;            // to the next place: a fork may hold the memory of another copy of this library
constexpr int kPlaces = 8;
constexpr std::size_t kGrowth = 4 << 20;         // address space is taken in pieces of this size: it is bounded
constexpr std::size_t kGivenBack = 32 << 20;     // pages of freed blocks from this size on go back to the system, as malloc does
constexpr std::size_t kGuard = 64;               // bytes behind each block, at least, that nobody may write to
constexpr std::size_t kNumber = 16;              // a block of this size is a number: torch makes one of each constant, on the host
constexpr unsigned char kBehind = 0xff;          // the bytes of a guard: NaN in every floating-point type
constexpr unsigned long kMost = 1ul << 48;       // of one report: a sum must not wrap around

struct Block {
  std::size_t span, bytes;                       // whole pages; what was asked for
  std::size_t skip = 0, most = bytes;            // of these, what kernels may access: `most` bytes behind the first `skip`
};

// A program's static variable that it has named to the CUDA API. On a device the host has another variable of that name: while
// device memory is closed, the values are here, and the variable holds kBehind.
struct Symbol {
  Address begin;
  std::vector<unsigned char> values;
};

// Never destroyed: tensors are freed by static destructors.
struct Memory {
  std::mutex mutex;
  std::map<Address, Block> blocks;
  std::map<Address, std::size_t> free;           // no two adjacent
  std::vector<Symbol> symbols;                   // may overlap, if a program names parts of a variable
  Address base = kBase, top = kBase;             // equal before the first allocation
  std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  bool guarded = false, closed = false;
  int open = 0;
  struct sigaction before {};
  std::atomic<unsigned long> host_bytes{0};
};
Memory& memory() {
  static Memory& one = *new Memory;
  return one;
}

std::size_t rounded(std::size_t bytes, std::size_t to) { return (bytes + to - 1) / to * to; }

void settle(Memory& all) {                       // with the mutex held
  const bool closed = all.guarded && all.open == 0;
  if (closed == all.closed) return;
  if (all.top != all.base) mprotect(reinterpret_cast<void*>(all.base), all.top - all.base, closed ? PROT_NONE : PROT_READ | PROT_WRITE);
  all.closed = closed;
  if (closed)
    for (Symbol& one : all.symbols) {
      std::memcpy(one.values.data(), reinterpret_cast<void*>(one.begin), one.values.size());
      std::memset(reinterpret_cast<void*>(one.begin), kBehind, one.values.size());
    }
  else
    for (auto one = all.symbols.rbegin(); one != all.symbols.rend(); ++one)
      std::memcpy(reinterpret_cast<void*>(one->begin), one->values.data(), one->values.size());
}

void give(Memory& all, Address begin, std::size_t span) {
  auto next = all.free.lower_bound(begin);
  if (next != all.free.end() && begin + span == next->first) {
    span += next->second;
    next = all.free.erase(next);
  }
  if (next != all.free.begin()) {
    const auto previous = std::prev(next);
    if (previous->first + previous->second == begin) {
      previous->second += span;
      return;
    }
  }
  all.free[begin] = span;
}

bool grow(Address begin, std::size_t more) {     // false: no memory there, and errno says why
  void* const at = reinterpret_cast<void*>(begin);
  void* const got = mmap(at, more, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  if (got == MAP_FAILED) return false;
  if (got != at) {                               // a kernel that takes the address for a hint
    munmap(got, more);
    errno = EEXIST;
    return false;
  }
  madvise(at, more, MADV_HUGEPAGE);              // opening and closing takes a step for each page
  return true;
}

Address take(Memory& all, std::size_t span) {    // 0: none
  auto best = all.free.end();
  for (auto one = all.free.begin(); one != all.free.end(); ++one)
    if (one->second >= span && (best == all.free.end() || one->second < best->second)) best = one;
  if (best == all.free.end()) {
    const std::size_t more = rounded(span, kGrowth);
    const bool first = all.top == all.base;
    bool got = grow(all.top, more);
    for (int place = 1; first && !got && errno == EEXIST && place < kPlaces; place++) {
      all.base = all.top = kBase + place * kApart;
      got = grow(all.top, more);
    }
    if (!got) return 0;
    give(all, all.top, more);
    all.top += more;
    return take(all, span);
  }
  const auto [begin, size] = *best;
  all.free.erase(best);
  if (size > span) all.free[begin + span] = size - span;
  return begin;
}

// Returns how far behind the block's end the first byte was written, and undoes it; -1: nowhere.
long written_behind(Address begin, const Block& block) {
  auto* const tail = reinterpret_cast<unsigned char*>(begin + block.bytes);
  const std::size_t length = block.span - block.bytes;
  const auto* const found = std::find_if(tail, tail + length, [](unsigned char one) { return one != kBehind; });
  if (found == tail + length) return -1;
  std::memset(tail, kBehind, length);
  return found - tail;
}

// Runs in the thread that touched closed memory; nothing here holds the mutex while it touches any.
void touched(int, siginfo_t* info, void*) {
  Memory& all = memory();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto at = reinterpret_cast<Address>(info->si_addr);
  if (info->si_code <= 0 || at < all.base || at >= all.top) {  // not ours: the same again for who was asked before
    sigaction(SIGSEGV, &all.before, nullptr);
    return;
  }
  if (!all.closed) return;                       // another thread has opened it meanwhile
  const Address page = at / all.page * all.page;
  auto block = all.blocks.upper_bound(at);
  if (block != all.blocks.begin()) {
    --block;
    const Address begin = std::max(page, block->first), end = std::min(page + all.page, block->first + block->second.bytes);
    if (begin < end && block->second.bytes > kNumber) all.host_bytes += end - begin;
  }
  mprotect(reinterpret_cast<void*>(page), all.page, PROT_READ | PROT_WRITE);  // until it is next opened and closed
}
}  // namespace

Open::Open() {
  const std::lock_guard<std::mutex> lock(memory().mutex);
  memory().open++;
  settle(memory());
}
Open::~Open() {
  const std::lock_guard<std::mutex> lock(memory().mutex);
  memory().open--;
  settle(memory());
}

void* allocate_device(std::size_t bytes) {
  Memory& all = memory();
  if (bytes == 0 || bytes > kMost) return nullptr;
  const Open open;
  const std::size_t span = rounded(bytes + kGuard, all.page);
  Address begin;
  {
    const std::lock_guard<std::mutex> lock(all.mutex);
    begin = take(all, span);
    if (begin == 0) return nullptr;
    all.blocks[begin] = {span, bytes};
  }
  // Who reads beyond the end finds no zeros there, and who writes is found by `find_overrun`.
  std::memset(reinterpret_cast<void*>(begin + bytes), kBehind, span - bytes);
  return reinterpret_cast<void*>(begin);
}

bool free_device(void* pointer) {
  Memory& all = memory();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto found = all.blocks.find(reinterpret_cast<Address>(pointer));
  if (found == all.blocks.end()) return false;
  const std::size_t span = found->second.span;
  all.blocks.erase(found);
  if (span >= kGivenBack) madvise(pointer, span, MADV_DONTNEED);
  give(all, reinterpret_cast<Address>(pointer), span);
  return true;
}

DeviceMap map_device() {
  const Memory& all = memory();
  const std::lock_guard<std::mutex> lock(memory().mutex);
  DeviceMap map{all.base, all.top, {}};
  for (const auto& [begin, block] : all.blocks) map.blocks.push_back({begin + block.skip, block.most, begin, block.span});
  return map;
}

std::string find_overrun(const void* values, std::size_t bytes) {
  Memory& all = memory();
  const std::lock_guard<std::mutex> lock(all.mutex);
  for (std::size_t at = 0; at + sizeof(Address) <= bytes; at += sizeof(Address)) {
    Address value;
    std::memcpy(&value, static_cast<const char*>(values) + at, sizeof value);
    if (value < all.base || value >= all.top) continue;
    auto block = all.blocks.upper_bound(value);
    if (block == all.blocks.begin()) continue;
    --block;
    if (value >= block->first + block->second.span) continue;
    const auto memory_of = " of device memory that has " + std::to_string(block->second.bytes) + " bytes";
    if (const long behind = written_behind(block->first, block->second); behind >= 0)
      return "writes out of bounds: to byte " + std::to_string(block->second.bytes + behind) + memory_of;
    if (block == all.blocks.begin()) continue;
    const auto before = std::prev(block);
    if (before->first + before->second.span == block->first && written_behind(before->first, before->second) >= 0)
      return "writes out of bounds: before byte 0" + memory_of;
  }
  return "";
}

bool is_device(const void* pointer) {
  const Memory& all = memory();
  const std::lock_guard<std::mutex> lock(memory().mutex);
  const auto at = reinterpret_cast<Address>(pointer);
  return (at >= all.base && at < all.top) ||
         std::any_of(all.symbols.begin(), all.symbols.end(), [&](const Symbol& one) { return at - one.begin < one.values.size(); });
}

bool know_symbol(const void* symbol, std::size_t bytes) {
  struct Asked {
    Address begin;
    std::size_t bytes;
    bool found, writable;
  } asked{reinterpret_cast<Address>(symbol), bytes, false, false};
  dl_iterate_phdr([](dl_phdr_info* info, std::size_t, void* of) {
    Asked& one = *static_cast<Asked*>(of);
    bool relocated = false;                      // and then closed to writers
    for (int i = 0; i < info->dlpi_phnum; i++) {
      const auto& part = info->dlpi_phdr[i];
      const Address skipped = one.begin - (info->dlpi_addr + part.p_vaddr);
      if (skipped >= part.p_memsz || one.bytes > part.p_memsz - skipped) continue;
      if (part.p_type == PT_GNU_RELRO) relocated = true;
      if (part.p_type == PT_LOAD) one.found = true, one.writable = (part.p_flags & PF_W) != 0;
    }
    one.writable = one.writable && !relocated;
    return one.found ? 1 : 0;
  }, &asked);
  Dl_info library{};
  if (!asked.found || dladdr(symbol, &library) == 0) return false;
  if (!asked.writable) return true;              // a table of constants
  dlopen(library.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);  // its memory stays
  const Open open;
  Memory& all = memory();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto known = std::find_if(all.symbols.begin(), all.symbols.end(), [&](const Symbol& one) { return one.begin == asked.begin; });
  if (known == all.symbols.end()) all.symbols.push_back({asked.begin, std::vector<unsigned char>(bytes)});
  else if (known->values.size() < bytes) known->values.resize(bytes);
  return true;
}

}  // namespace stitchsim

using stitchsim::memory;

void* stitchsim_allocate(unsigned long bytes) { return stitchsim::allocate_device(bytes); }
void stitchsim_free(void* pointer) { stitchsim::free_device(pointer); }

void stitchsim_guard(int on) {
  const std::lock_guard<std::mutex> lock(memory().mutex);
  memory().guarded = on != 0;
  if (on != 0) {
    struct sigaction ours {}, now {};
    ours.sa_sigaction = stitchsim::touched;
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGSEGV, &ours, &now);
    if (now.sa_sigaction != ours.sa_sigaction) memory().before = now;
  }
  stitchsim::settle(memory());
}
void stitchsim_bound(const void* begin, unsigned long bytes) {
  const std::lock_guard<std::mutex> lock(memory().mutex);
  const auto at = reinterpret_cast<stitchsim::Address>(begin);
  auto block = memory().blocks.upper_bound(at);
  if (block == memory().blocks.begin() || at + bytes > (--block)->first + block->second.bytes) return;
  block->second.skip = at - block->first;
  block->second.most = bytes;
}
int stitchsim_is_device(const void* pointer) { return stitchsim::is_device(pointer); }
void stitchsim_open() {
  const std::lock_guard<std::mutex> lock(memory().mutex);
  memory().open++;
  stitchsim::settle(memory());
}
void stitchsim_close() {
  const std::lock_guard<std::mutex> lock(memory().mutex);
  memory().open--;
  stitchsim::settle(memory());
}
void stitchsim_read_back(unsigned long bytes) { memory().host_bytes += std::min(bytes, stitchsim::kMost); }
unsigned long stitchsim_host_bytes() { return memory().host_bytes; }
