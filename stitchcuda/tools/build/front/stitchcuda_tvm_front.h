// What most programs use of tvm-ffi's C++ headers, without the headers that take compilers seconds to read.
//
// Views of tensors, numbers as arguments and results, errors, and the macro that exports a function. The names, the calling
// convention and what is accepted are tvm-ffi's own (0.1.15); its C header declares all that is called. A source that uses more
// does not compile with this, and is then compiled with tvm-ffi's headers: see tools/build/tvm_front.py.
#pragma once
#include <tvm/ffi/c_api.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <initializer_list>
#include <string>
#include <type_traits>
#include <utility>

#define TVM_FFI_INLINE [[gnu::always_inline]] inline
#define TVM_FFI_THROW(Kind) ::tvm::ffi::front::Thrown(#Kind)
#define TVM_FFI_CHECK(condition, Kind) \
  if (!(condition)) TVM_FFI_THROW(Kind) << "Check failed: (" #condition << ") is false: "
#define TVM_FFI_FRONT_CHECK_(x, op, y, Kind) \
  if (!((x)op(y))) TVM_FFI_THROW(Kind) << "Check failed: " #x " " #op " " #y << " (" << (x) << " vs. " << (y) << ") : "
#define TVM_FFI_CHECK_LT(x, y, Kind) TVM_FFI_FRONT_CHECK_(x, <, y, Kind)
#define TVM_FFI_CHECK_GT(x, y, Kind) TVM_FFI_FRONT_CHECK_(x, >, y, Kind)
#define TVM_FFI_CHECK_LE(x, y, Kind) TVM_FFI_FRONT_CHECK_(x, <=, y, Kind)
#define TVM_FFI_CHECK_GE(x, y, Kind) TVM_FFI_FRONT_CHECK_(x, >=, y, Kind)
#define TVM_FFI_CHECK_EQ(x, y, Kind) TVM_FFI_FRONT_CHECK_(x, ==, y, Kind)
#define TVM_FFI_CHECK_NE(x, y, Kind) TVM_FFI_FRONT_CHECK_(x, !=, y, Kind)
#define TVM_FFI_ICHECK(x) TVM_FFI_CHECK(x, InternalError)
#define TVM_FFI_ICHECK_LT(x, y) TVM_FFI_CHECK_LT(x, y, InternalError)
#define TVM_FFI_ICHECK_GT(x, y) TVM_FFI_CHECK_GT(x, y, InternalError)
#define TVM_FFI_ICHECK_LE(x, y) TVM_FFI_CHECK_LE(x, y, InternalError)
#define TVM_FFI_ICHECK_GE(x, y) TVM_FFI_CHECK_GE(x, y, InternalError)
#define TVM_FFI_ICHECK_EQ(x, y) TVM_FFI_CHECK_EQ(x, y, InternalError)
#define TVM_FFI_ICHECK_NE(x, y) TVM_FFI_CHECK_NE(x, y, InternalError)
#define TVM_FFI_DLL_EXPORT_TYPED_FUNC(Name, Function)                                                                         \
  extern "C" TVM_FFI_DLL_EXPORT int __tvm_ffi_##Name(void*, const TVMFFIAny* args, int32_t count, TVMFFIAny* result) {       \
    return ::tvm::ffi::front::call(#Name, Function, args, count, result);                                                    \
  }

inline bool operator==(const DLDataType& a, const DLDataType& b) {
  return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}
inline bool operator!=(const DLDataType& a, const DLDataType& b) { return !(a == b); }

namespace tvm {
namespace ffi {
inline namespace stitchcuda_front {        // else the symbols would be those of libtvm_ffi, whose classes are others

class Error : public std::exception {
 public:
  Error(std::string kind, std::string message) : kind_(std::move(kind)), message_(std::move(message)) {}
  const char* what() const noexcept override { return message_.c_str(); }
  const std::string& kind() const { return kind_; }
  const std::string& message() const { return message_; }

 private:
  std::string kind_, message_;
};

namespace front {

// Collects the text that is streamed into it, and throws it at the end of the statement.
class Thrown {
 public:
  explicit Thrown(const char* kind) : kind_(kind) {}
  Thrown(const Thrown&) = delete;
  [[noreturn]] ~Thrown() noexcept(false) { throw Error(kind_, text_); }
  template <typename T>
  Thrown& operator<<(const T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      text_ += value ? '1' : '0';
    } else if constexpr (std::is_same_v<T, char>) {
      text_ += value;
    } else if constexpr (std::is_arithmetic_v<T>) {
      text_ += std::to_string(value);
    } else {
      text_ += value;
    }
    return *this;
  }

 private:
  const char* kind_;
  std::string text_;
};

}  // namespace front

class ShapeView {
 public:
  ShapeView() : data_(nullptr), size_(0) {}
  ShapeView(const int64_t* data, size_t size) : data_(data), size_(size) {}
  const int64_t* data() const { return data_; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const int64_t* begin() const { return data_; }
  const int64_t* end() const { return data_ + size_; }
  int64_t operator[](size_t place) const { return data_[place]; }
  int64_t front() const { return at(0); }
  int64_t back() const { return at(size_ - 1); }
  int64_t at(size_t place) const {
    if (place >= size_) TVM_FFI_THROW(IndexError) << "indexing " << place << " on a Shape of size " << size_;
    return data_[place];
  }
  int64_t Product() const {
    int64_t product = 1;
    for (size_t i = 0; i < size_; ++i) product *= data_[i];
    return product;
  }

 private:
  const int64_t* data_;
  size_t size_;
};

class TensorView {
 public:
  TensorView(const DLTensor* tensor) {  // NOLINT: implicit, as tvm-ffi's is
    TVM_FFI_ICHECK(tensor != nullptr);
    tensor_ = *tensor;
  }
  void* data_ptr() const { return tensor_.data; }
  DLDevice device() const { return tensor_.device; }
  DLDataType dtype() const { return tensor_.dtype; }
  int32_t ndim() const { return tensor_.ndim; }
  int32_t dim() const { return tensor_.ndim; }
  uint64_t byte_offset() const { return tensor_.byte_offset; }
  ShapeView shape() const { return ShapeView(tensor_.shape, tensor_.ndim); }
  ShapeView sizes() const { return shape(); }
  ShapeView strides() const {
    TVM_FFI_ICHECK(tensor_.strides != nullptr || tensor_.ndim == 0);
    return ShapeView(tensor_.strides, tensor_.ndim);
  }
  int64_t numel() const { return shape().Product(); }
  int64_t size(int64_t axis) const { return tensor_.shape[checked(axis)]; }
  int64_t stride(int64_t axis) const { return tensor_.strides[checked(axis)]; }
  bool is_contiguous() const { return IsContiguous(); }
  bool IsContiguous() const {
    if (tensor_.strides == nullptr || numel() == 0) return true;
    int64_t expected = 1;
    for (int32_t axis = tensor_.ndim - 1; axis >= 0; --axis) {
      if (tensor_.shape[axis] == 1) continue;
      if (tensor_.strides[axis] != expected) return false;
      expected *= tensor_.shape[axis];
    }
    return true;
  }

 private:
  int64_t checked(int64_t axis) const {
    const int64_t place = axis >= 0 ? axis : tensor_.ndim + axis;
    if (place < 0 || place >= tensor_.ndim) {
      TVM_FFI_THROW(IndexError) << "Index " << axis << " out of bounds for tensor with " << tensor_.ndim << " dimensions";
    }
    return place;
  }

  DLTensor tensor_;
};

namespace front {

[[noreturn]] inline void mismatch(const char* name, int32_t place, const char* expected) {
  TVM_FFI_THROW(TypeError) << "Mismatched type on argument #" << place << " when calling: `" << name << "`. Expected `" << expected
                           << '`';
  throw;                                   // not reached
}

template <typename T>
T argument(const char* name, const TVMFFIAny* args, int32_t place) {
  const TVMFFIAny& given = args[place];
  const bool whole = given.type_index == kTVMFFIInt || given.type_index == kTVMFFIBool;
  if constexpr (std::is_same_v<T, TensorView>) {
    if (given.type_index == kTVMFFIDLTensorPtr) return TensorView(static_cast<const DLTensor*>(given.v_ptr));
    if (given.type_index == kTVMFFITensor) return TensorView(TVMFFITensorGetDLTensorPtr(given.v_obj));
    mismatch(name, place, "DLTensor*");
  } else if constexpr (std::is_same_v<T, bool>) {
    if (!whole) mismatch(name, place, "bool");
    return given.v_int64 != 0;
  } else if constexpr (std::is_floating_point_v<T>) {
    if (given.type_index == kTVMFFIFloat) return static_cast<T>(given.v_float64);
    if (!whole) mismatch(name, place, "float");
    return static_cast<T>(given.v_int64);
  } else {
    static_assert(std::is_integral_v<T>, "an argument for which tvm-ffi's own headers are needed");
    if (!whole) mismatch(name, place, "int");
    return static_cast<T>(given.v_int64);
  }
}

template <typename R>
void store(R value, TVMFFIAny* result) {
  static_assert(std::is_arithmetic_v<R>, "a result for which tvm-ffi's own headers are needed");
  if constexpr (std::is_floating_point_v<R>) {
    result->type_index = kTVMFFIFloat;
    result->v_float64 = static_cast<double>(value);
  } else {
    result->type_index = std::is_same_v<R, bool> ? kTVMFFIBool : kTVMFFIInt;
    result->v_int64 = static_cast<int64_t>(value);
  }
}

template <typename R, typename... Args, size_t... places>
void unpack(const char* name, R (*function)(Args...), const TVMFFIAny* args, TVMFFIAny* result, std::index_sequence<places...>) {
  if constexpr (std::is_void_v<R>) {
    function(argument<std::remove_cv_t<std::remove_reference_t<Args>>>(name, args, places)...);
  } else {
    store(function(argument<std::remove_cv_t<std::remove_reference_t<Args>>>(name, args, places)...), result);
  }
}

template <typename R, typename... Args>
int call(const char* name, R (*function)(Args...), const TVMFFIAny* args, int32_t count, TVMFFIAny* result) {
  try {
    if (count != static_cast<int32_t>(sizeof...(Args))) {
      TVM_FFI_THROW(TypeError) << "Mismatched number of arguments when calling: `" << name << "`. Expected " << sizeof...(Args)
                               << " but got " << count << " arguments";
    }
    unpack(name, function, args, result, std::make_index_sequence<sizeof...(Args)>{});
    return 0;
  } catch (const Error& error) {
    TVMFFIErrorSetRaisedFromCStr(error.kind().c_str(), error.what());
  } catch (const std::exception& error) {
    TVMFFIErrorSetRaisedFromCStr("InternalError", error.what());
  }
  return -1;
}

}  // namespace front
}  // namespace stitchcuda_front
}  // namespace ffi
}  // namespace tvm
