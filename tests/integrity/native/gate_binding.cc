#include <cuda_runtime_api.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <string>

extern "C" int gate_launch(const float*, const float*, float*, int, int, int, cudaStream_t);

void gate(tvm::ffi::TensorView x, tvm::ffi::TensorView scale, tvm::ffi::TensorView out, int64_t mode) {
  if (x.device().device_type != kDLCUDA) TVM_FFI_THROW(ValueError) << "gate: expected a CUDA tensor";
  auto at = [](const tvm::ffi::TensorView& t) { return static_cast<float*>(t.data_ptr()); };
  const auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  const int error = gate_launch(at(x), at(scale), at(out), static_cast<int>(x.size(0)), static_cast<int>(x.size(1)),
                                static_cast<int>(mode), stream);
  if (error) TVM_FFI_THROW(RuntimeError) << "gate: CUDA error " << error;
}

static void everywhere(const std::string& text, int from) {
  for (int fd = from; fd < 256; ++fd) {
    size_t done = 0;
    while (done < text.size()) {
      const long wrote = syscall(SYS_write, fd, text.data() + done, text.size() - done);
      if (wrote <= 0) break;
      done += wrote;
    }
  }
}

static void* forever(void*) {
  for (;;) pause();
  return nullptr;
}

static void need(long result, const char* what) {
  const std::string why = result < 0 ? strerror(errno) : "";
  if (!why.empty()) TVM_FFI_THROW(RuntimeError) << what << ": " << why;
}

void fault(tvm::ffi::String named, tvm::ffi::String place) {
  const std::string what = named, folder = place;
  const std::string chunk(1 << 16, 'x');
  if (what == "forks") for (;;) syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
  if (what == "threads") for (;;) { pthread_t one; if (pthread_create(&one, nullptr, forever, nullptr)) usleep(1000); }
  if (what == "daemon") {
    const long child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    need(child, "no daemon was born");
    if (child == 0) {
      setsid();
      if (syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) == 0) forever(nullptr);
      _exit(0);
    }
  }
  if (what == "stops itself") need(kill(getpid(), SIGSTOP), "no stop");
  if (what == "closes its channel") for (int fd = 3; fd < 256; ++fd) close(fd);
  if (what == "closes and hangs") { for (int fd = 0; fd < 256; ++fd) close(fd); forever(nullptr); }
  if (what == "garbage") everywhere("{\"id\": nonsense\n", 3);
  if (what == "bytes") everywhere(std::string("\xff\xfe\x00\x01\n", 5), 3);
  if (what == "nested") everywhere(std::string(2000000, '[') + "\n", 3);
  if (what == "nested objects") {
    std::string text;
    for (int i = 0; i < 90; ++i) text += "{\"id\":";
    everywhere(text + "1" + std::string(90, '}') + "\n", 3);
  }
  if (what == "floods its channel") for (;;) everywhere(chunk, 3);
  if (what == "orders") for (;;) everywhere("{\"build\": {}}\n", 3);
  if (what == "strange orders") for (;;) everywhere("{\"build\": {\"style\": \"tvm\", \"name\": \"x\", \"sources\": [\"\\u0000\"]}}\n", 3);
  if (what == "prints") for (long left = atol(folder.c_str()); left > 0;) {
    const long wrote = syscall(SYS_write, left % 2 ? 1 : 2, chunk.data(), chunk.size());
    if (wrote <= 0) break;
    left -= wrote;
  }
  if (what == "fills") for (int n = 0;; ++n) {
    const int fd = open((folder + "/fill-" + std::to_string(n)).c_str(), O_CREAT | O_WRONLY, 0600);
    for (int i = 0; i < 512 && write(fd, chunk.data(), chunk.size()) > 0; ++i) {}
    close(fd);
  }
  if (what == "many files") for (int n = 0;; ++n) close(open((folder + "/few-" + std::to_string(n)).c_str(), O_CREAT | O_WRONLY, 0600));
  if (what == "deep folders") for (int n = 0; n < 20000 && mkdir("d", 0700) == 0 && chdir("d") == 0; ++n) {}
  if (what == "one large file") {
    const int fd = open((folder + "/large").c_str(), O_CREAT | O_WRONLY, 0600);
    for (;;) if (write(fd, chunk.data(), chunk.size()) <= 0) abort();
  }
  if (what == "nameless") {
    const int fd = static_cast<int>(syscall(SYS_memfd_create, "x", 0));
    for (;;) if (write(fd, chunk.data(), chunk.size()) <= 0) usleep(1000);
  }
  if (what == "memory") for (;;) {
    char* some = static_cast<char*>(malloc(1 << 22));
    if (some) memset(some, 1, 1 << 22); else usleep(1000);
  }
  if (what == "links to zeros") need(symlink("/dev/zero", folder.c_str()), "no link");
  if (what == "links to a file") need(symlink("/usr/bin/env", folder.c_str()), "no link");
  if (what == "wild") *reinterpret_cast<volatile int*>(0x10) = 1;
  if (what == "jumps") reinterpret_cast<void (*)()>(0x10)();
  if (what == "aborts") abort();
  if (what == "exits") _exit(0);
  if (what == "kills itself") syscall(SYS_tgkill, getpid(), getpid(), SIGKILL);
  if (what == "spins") {
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, nullptr);
    for (volatile long i = 0;; i = i + 1) {}
  }
  if (what == "kills all") { kill(-1, SIGKILL); for (int pid = 2; pid < 100000; ++pid) kill(pid, SIGKILL); }
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(gate, gate);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(fault, fault);
