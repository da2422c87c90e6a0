#include "access_check.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <unordered_map>

#include "block.h"
#include "device_memory.h"
#include "stitchsim/thread.h"

namespace stitchsim {

namespace {
constexpr std::uintptr_t kWord = 4;
constexpr int kSeveral = -1;

struct Access {
  unsigned long block = 0;
  unsigned epoch = 0, turn = 0;                 // barriers of the block, operations of the warp before it
  int thread = 0, warp = 0;                     // kSeveral: more than one
  unsigned char bytes = 0;                      // of the word, as bits; 0: nobody
  bool writes = false;
};
struct Word {                                   // accesses that begin at one address
  Access write, read;
  bool divided = false;                         // of an address divisible by kWord: others of the word have accesses too
};
struct Doubt {                                  // a write that races unless it changes nothing
  std::uintptr_t word = 0;
  unsigned char before[kWord];
  std::string text;
  bool shared;
};

struct Check {
  std::unordered_map<std::uintptr_t, Word> words;
  std::vector<Range> shared;                    // static variables; the first is the dynamic memory
  std::vector<unsigned> turns;                  // by warp
  std::vector<Doubt> doubts;
  unsigned long block = 0, left = 0, most = 0;
  unsigned epoch = 0;
  bool fenced = false;
  std::string found, found_global;              // the second counts if there is no fence
  std::string unwritten;

  DeviceMap device;                             // when the launch began
  std::mutex mutex;                             // guards `outside`
  std::string outside;
};
Check& check() {
  static Check& one = *new Check;
  return one;
}

enum : unsigned char { kNothing = 0, kBounds = 1, kRaces = 2 };
__thread unsigned char checking = kNothing;
__thread Range dynamic{0, 0};                   // of the block that this thread runs: all there is,
__thread std::size_t dynamic_used = 0;          // and what was asked for
// Of device memory that this thread has found to be there in this block, by the place of the access: most accesses of a place are to one
// tensor, and looking it up takes longer than all else. On the heap, and kept: there is little room for variables of a thread.
constexpr std::size_t kPlaces = 64;
__thread Range* known = nullptr;
Range& known_at(const void* caller) { return known[reinterpret_cast<std::uintptr_t>(caller) / 4 % kPlaces]; }

bool is_shared(std::uintptr_t at) {
  for (const Range& range : check().shared)
    if (at >= range.begin && at < range.end) return true;
  return false;
}

bool in_order(const Access& before, unsigned warp_turn, bool shared) {
  const Check& all = check();
  if (before.block != all.block) return shared;  // another block's shared memory is another memory
  if (before.epoch != all.epoch) return true;
  if (before.thread == here.thread) return true;
  return before.warp == here.warp && before.turn != warp_turn;
}

std::string name(const Access& access) {
  return access.thread == kSeveral ? "several threads" : "thread " + std::to_string(access.thread);
}

std::string thread_here() {
  return "thread " + std::to_string(here.thread) + " of block (" + std::to_string(blockIdx.x) + ", " + std::to_string(blockIdx.y) +
         ", " + std::to_string(blockIdx.z) + ")";
}

// Where an access is made, as "[library+0x1f]"; simulator/source_lines.py makes a line of it.
std::string place(const void* caller) {
  Dl_info info{};
  if (dladdr(caller, &info) == 0 || info.dli_fname == nullptr) return "";
  char offset[32];
  snprintf(offset, sizeof offset, "+0x%zx]", reinterpret_cast<std::uintptr_t>(caller) - 1 - reinterpret_cast<std::uintptr_t>(info.dli_fbase));
  return std::string(" [") + info.dli_fname + offset;
}

// The block of device memory that an address belongs to, or null.
const DeviceMap::Block* block_of(std::uintptr_t at) {
  const auto& blocks = check().device.blocks;
  const auto next = std::upper_bound(blocks.begin(), blocks.end(), at, [](std::uintptr_t one, const auto& block) { return one < block.first; });
  return next == blocks.begin() || at >= std::prev(next)->first + std::prev(next)->span ? nullptr : &*std::prev(next);
}

// Says which byte an address of device memory is; negative: before the memory that it belongs to.
std::string device_byte(std::uintptr_t at) {
  const auto* const block = block_of(at);
  if (block == nullptr) return "device memory that is not allocated";
  return "byte " + std::to_string(static_cast<long>(at - block->begin)) + " of device memory that has " + std::to_string(block->bytes) + " bytes";
}

// Whether an access lies in device memory; if so, and not within one block of it, that is told.
bool look_for_bounds(std::uintptr_t begin, std::size_t bytes, bool writes, const void* caller) {
  Check& all = check();
  const auto tell = [&](const std::string& what) {
    const std::lock_guard<std::mutex> lock(all.mutex);
    if (all.outside.empty()) all.outside = (writes ? "writes" : "reads") + (" out of bounds: " + what + ", in " + thread_here()) + place(caller);
  };
  if (begin >= dynamic.begin && begin < dynamic.end) {
    if (begin + bytes > dynamic.begin + dynamic_used)
      tell("byte " + std::to_string(begin + bytes - 1 - dynamic.begin) + " of dynamic shared memory that has " + std::to_string(dynamic_used) + " bytes");
    return false;
  }
  if (begin < all.device.begin || begin >= all.device.end) return false;
  const auto* const block = block_of(begin);
  if (block == nullptr || begin < block->begin) tell(device_byte(begin));
  else if (begin + bytes > block->begin + block->bytes) tell(device_byte(begin + bytes - 1));
  else known_at(caller) = {block->begin, block->begin + block->bytes};
  return true;
}

void report(bool shared, const std::string& text) {
  std::string& found = shared ? check().found : check().found_global;
  if (found.empty()) found = text;
}

void settle() {
  Check& all = check();
  for (const Doubt& doubt : all.doubts)
    if (std::memcmp(doubt.before, reinterpret_cast<const void*>(doubt.word), kWord) != 0)
      report(doubt.shared, doubt.text);
  all.doubts.clear();
}

// Finds the earlier access, if any, that one of some `bytes` of the word at `word` races with.
const Access* find_racing(std::uintptr_t word, unsigned char bytes, bool writes, bool shared, unsigned turn) {
  Check& all = check();
  const auto races = [&](const Access& other) { return (other.bytes & bytes) != 0 && !in_order(other, turn, shared); };
  const bool divided = all.words[word].divided;
  for (std::uintptr_t begin = word; begin < word + (divided ? kWord : 1); begin++) {
    const auto found = all.words.find(begin);
    if (found == all.words.end()) continue;
    if (races(found->second.write)) return &found->second.write;
    if (writes && races(found->second.read)) return &found->second.read;
  }
  return nullptr;
}

// Shared memory holds bytes of 0xff when a block begins (block.cpp). Atomic and volatile writes are not followed, hence the look at these.
void look_for_unwritten(std::uintptr_t word, unsigned char bytes, const void* caller) {
  Check& all = check();
  for (std::uintptr_t at = word; at < word + kWord; at++) {
    const auto found = all.words.find(at);
    if (found != all.words.end() && found->second.write.bytes != 0 && found->second.write.block == all.block) return;
    if ((bytes >> (at - word) & 1) != 0 && *reinterpret_cast<const unsigned char*>(at) != 0xff) return;
  }
  all.unwritten = "reads shared memory that its block has not written: " + thread_here() + place(caller);
}

void look_for_races(std::uintptr_t word, unsigned char bytes, bool writes, bool shared, const void* caller) {
  Check& all = check();
  const std::uintptr_t begin = word + __builtin_ctz(bytes);
  if (begin != word) all.words[word].divided = true;
  Word& one = all.words[begin];
  if (all.turns.size() <= static_cast<std::size_t>(here.warp)) all.turns.resize(here.warp + 1);
  const unsigned turn = all.turns[here.warp];
  if (const Access* const other = find_racing(word, bytes, writes, shared, turn)) {
    const bool same_block = other->block == all.block;
    const std::string text = "has a race in " + (shared ? "shared memory" : device_byte(begin)) + ": " + thread_here() +
        (writes ? " writes" : " reads") + " what " + name(*other) +
        (same_block ? " of the same block " : " of another block ") + (other->writes ? "wrote" : "read") +
        (same_block ? " since the last barrier" : "") + place(caller);
    if (writes) {
      Doubt doubt{word, {}, text, shared};
      std::memcpy(doubt.before, reinterpret_cast<const void*>(word), kWord);
      all.doubts.push_back(doubt);
    } else {
      report(shared, text);
    }
  }
  Access& mine = writes ? one.write : one.read;
  const bool again = !writes && mine.bytes != 0 && mine.block == all.block && mine.epoch == all.epoch;
  const bool across = again && mine.warp != here.warp;
  // Who read before the warp's last operation is before all that the warp does now; to other warps one reader is as good as another.
  const bool several = across || (again && mine.turn == turn && mine.thread != here.thread);
  mine.thread = several ? kSeveral : here.thread;
  mine.warp = across ? kSeveral : here.warp;
  mine.writes = writes;
  mine.bytes = again ? mine.bytes | bytes : bytes;
  mine.block = all.block;
  mine.epoch = all.epoch;
  mine.turn = turn;
}

// Ends the kernel here: the host may not stand such an access either.
void refuse_misaligned(const void* address, std::size_t wanted, const void* caller) {
  const DeviceMap& device = check().device;
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  const bool on_device = at >= device.begin && at < device.end;
  if (!on_device && (at < dynamic.begin || at >= dynamic.end)) return;  // a thread's own memory, or the host's
  const std::string memory = on_device ? device_byte(at) : "byte " + std::to_string(at - dynamic.begin) + " of dynamic shared memory";
  Block::current().fail("accesses memory at an address that is no multiple of " + std::to_string(wanted) + ": " + memory + place(caller));
}

void touch(const void* address, std::size_t bytes, bool writes, const void* caller) {
  const auto begin = reinterpret_cast<std::uintptr_t>(address), end = begin + bytes;
  if (checking == kBounds) {
    const Range& found = known_at(caller);
    if (begin >= found.begin && end <= found.end) return;
  }
  Check& all = check();
  if (!all.doubts.empty()) settle();
  if ((checking & kRaces) == 0) {
    look_for_bounds(begin, bytes, writes, caller);
    return;
  }
  const bool shared = is_shared(begin);
  if (!shared && !look_for_bounds(begin, bytes, writes, caller)) return;  // a thread's own memory, or the host's
  if (--all.left == 0) checking = kBounds;
  for (std::uintptr_t word = begin / kWord * kWord; word < end; word += kWord) {
    unsigned char mask = 0;
    for (std::uintptr_t at = std::max(begin, word); at < std::min(end, word + kWord); at++) mask |= 1u << (at - word);
    if (shared && !writes && all.unwritten.empty()) look_for_unwritten(word, mask, caller);
    look_for_races(word, mask, writes, shared, caller);
  }
}
}  // namespace

void begin_access_check(unsigned long most) {
  Check& all = check();
  all.words.clear();
  all.doubts.clear();
  all.most = all.left = most;
  all.fenced = false;
  all.found.clear();
  all.found_global.clear();
  all.outside.clear();
  all.unwritten.clear();
  all.device = map_device();
}

unsigned long end_access_check() {
  settle();
  check().words.clear();
  return check().most - check().left;
}

std::string found_mistake() {
  const Check& all = check();
  if (!all.outside.empty()) return all.outside;
  return !all.found.empty() || all.fenced ? all.found : all.found_global;
}

std::string found_unwritten() { return check().unwritten; }

void begin_block_check(unsigned long block, Range dynamic_shared, std::size_t used) {
  Check& all = check();
  dynamic = dynamic_shared;
  dynamic_used = used;
  if (known == nullptr) known = new Range[kPlaces];
  std::fill_n(known, kPlaces, Range{0, 0});
  checking = kBounds;
  if (all.left == 0) return;
  checking |= kRaces;
  all.block = block + 1;
  all.epoch = 0;
  all.turns.assign(all.turns.size(), 0);
  all.shared.assign(1, {dynamic.begin, dynamic.begin + used});
}
void end_block_check() { checking = kNothing; }

void know_shared(const void* variable, std::size_t bytes) {
  if ((checking & kRaces) == 0) return;
  const auto begin = reinterpret_cast<std::uintptr_t>(variable);
  check().shared.push_back({begin, begin + bytes});
}
void pass_barrier() {
  if (checking & kRaces) check().epoch++;
}
void pass_warp_operation(int warp) {
  if ((checking & kRaces) == 0) return;
  auto& turns = check().turns;
  if (turns.size() <= static_cast<std::size_t>(warp)) turns.resize(warp + 1);
  turns[warp]++;
}

}  // namespace stitchsim

// ---- what instrumented code calls (gcc's names; https://gcc.gnu.org, gcc/sanitizer.def) ---------------------------------

using stitchsim::checking;
using stitchsim::touch;

#define VISIBLE extern "C" __attribute__((visibility("default")))
#define PLAIN(N)                                                                        \
  VISIBLE void __tsan_read##N(void* at) { if (checking) touch(at, N, false, __builtin_return_address(0)); }          \
  VISIBLE void __tsan_write##N(void* at) { if (checking) touch(at, N, true, __builtin_return_address(0)); }          \
  VISIBLE void __tsan_unaligned_read##N(void* at) { if (checking) touch(at, N, false, __builtin_return_address(0)); } \
  VISIBLE void __tsan_unaligned_write##N(void* at) { if (checking) touch(at, N, true, __builtin_return_address(0)); } \
  VISIBLE void __tsan_volatile_read##N(void*) {}                                        \
  VISIBLE void __tsan_volatile_write##N(void*) {}                                       \
  VISIBLE void __tsan_unaligned_volatile_read##N(void*) {}                              \
  VISIBLE void __tsan_unaligned_volatile_write##N(void*) {}
PLAIN(1) PLAIN(2) PLAIN(4) PLAIN(8) PLAIN(16)

VISIBLE void __tsan_read_range(void* at, std::size_t bytes) { if (checking) touch(at, bytes, false, __builtin_return_address(0)); }
VISIBLE void __tsan_write_range(void* at, std::size_t bytes) { if (checking) touch(at, bytes, true, __builtin_return_address(0)); }
VISIBLE void __tsan_init() {}
VISIBLE void __tsan_func_entry(void*) {}
VISIBLE void __tsan_func_exit() {}
VISIBLE void __tsan_vptr_update(void*, void*) {}
VISIBLE void __tsan_vptr_read(void*) {}
VISIBLE void __tsan_atomic_thread_fence(int) {
  if (checking != 0) stitchsim::check().fenced = true;
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
VISIBLE void __tsan_atomic_signal_fence(int) {}

#define CHANGE(T, N, NAME) \
  VISIBLE T __tsan_atomic##N##_##NAME(volatile T* at, T value, int) { return __atomic_##NAME(at, value, __ATOMIC_SEQ_CST); }
#define ATOMIC(T, N)                                                                                                     \
  VISIBLE T __tsan_atomic##N##_load(const volatile T* at, int) { return __atomic_load_n(at, __ATOMIC_SEQ_CST); }         \
  VISIBLE void __tsan_atomic##N##_store(volatile T* at, T value, int) { __atomic_store_n(at, value, __ATOMIC_SEQ_CST); } \
  VISIBLE T __tsan_atomic##N##_exchange(volatile T* at, T value, int) { return __atomic_exchange_n(at, value, __ATOMIC_SEQ_CST); } \
  CHANGE(T, N, fetch_add) CHANGE(T, N, fetch_sub) CHANGE(T, N, fetch_and) CHANGE(T, N, fetch_or) CHANGE(T, N, fetch_xor) \
  CHANGE(T, N, fetch_nand)                                                                                               \
  VISIBLE bool __tsan_atomic##N##_compare_exchange_strong(volatile T* at, T* expected, T wanted, int, int) {             \
    return __atomic_compare_exchange_n(at, expected, wanted, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                 \
  }                                                                                                                      \
  VISIBLE bool __tsan_atomic##N##_compare_exchange_weak(volatile T* at, T* expected, T wanted, int, int) {               \
    return __atomic_compare_exchange_n(at, expected, wanted, true, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                  \
  }
ATOMIC(std::uint8_t, 8) ATOMIC(std::uint16_t, 16) ATOMIC(std::uint32_t, 32) ATOMIC(std::uint64_t, 64)

// Where a pointer's address does not fit its type (gcc's libsanitizer/ubsan/ubsan_handlers.h). A null pointer is not told here.
struct TypeMismatch {
  const char* file;
  std::uint32_t line, column;
  const void* type;
  unsigned char log_alignment, kind;
};
VISIBLE void __ubsan_handle_type_mismatch_v1(TypeMismatch* data, void* at) {
  if (checking && at != nullptr) stitchsim::refuse_misaligned(at, std::size_t{1} << data->log_alignment, __builtin_return_address(0));
}
