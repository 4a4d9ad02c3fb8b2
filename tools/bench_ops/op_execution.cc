#include "tools/bench_ops/op_execution.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "src/base/philox.h"

namespace yardmaster {
namespace {

constexpr unsigned char kPoison = 0xFF;
constexpr int64_t kBlock = 1'000'003;  // odd, so that rows are not alike

int64_t UsedElements(const BenchBuffer& b) {
  const int64_t n = b.shape.elements();
  return b.used < 0 || b.shape[0] == 0 ? n : n / b.shape[0] * b.used;
}

template <class F>
void Dispatch(DType t, F&& f) {
  switch (t) {
    case DType::kU8:
      return f.template operator()<uint8_t>();
    case DType::kI32:
      return f.template operator()<int32_t>();
    case DType::kI64:
      return f.template operator()<int64_t>();
    case DType::kF32:
      return f.template operator()<float>();
    case DType::kF64:
      return f.template operator()<double>();
    case DType::kBF16:
      return f.template operator()<BFloat16>();
    default:
      YM_CHECK(false, "no benched op has tensors of ", DTypeName(t));
  }
}

template <class T>
T To(double x) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    return BFloat16(static_cast<float>(x));
  } else {
    return static_cast<T>(x);
  }
}
template <class T>
double From(T x) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    return static_cast<double>(static_cast<float>(x));
  } else {
    return static_cast<double>(x);
  }
}

// The first n values of a buffer; those that it lists repeat where it lists fewer.
std::vector<double> FirstValues(const BenchBuffer& b, uint64_t seed, int64_t n) {
  std::vector<double> out(static_cast<size_t>(n));
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = b.values.empty() ? b.scale * PhiloxNormal(seed, StreamOf(b.name.c_str()), i)
                              : b.values[i % b.values.size()];
  }
  return out;
}

bool IsInput(const BenchBuffer& b) { return b.scale != 0 || !b.values.empty(); }

std::vector<unsigned char> Packed(const std::vector<double>& values, DType type) {
  std::vector<unsigned char> bytes(values.size() * static_cast<size_t>(DTypeBytes(type)));
  Dispatch(type, [&]<class T>() {
    for (size_t i = 0; i < values.size(); ++i) {
      const T x = To<T>(values[i]);
      std::memcpy(bytes.data() + i * sizeof(T), &x, sizeof(T));
    }
  });
  return bytes;
}

}  // namespace

DType BenchDType(BenchType type, DType work) {
  switch (type) {
    case BenchType::kWork:
      return work;
    case BenchType::kAccum:
      return work == DType::kBF16 ? DType::kF32 : work;
    case BenchType::kI32:
      return DType::kI32;
    case BenchType::kI64:
      return DType::kI64;
    case BenchType::kBF16:
      return DType::kBF16;
    case BenchType::kF32:
      return DType::kF32;
    case BenchType::kF64:
      return DType::kF64;
    case BenchType::kU8:
      return DType::kU8;
  }
  return work;
}

double UsedBytes(const BenchBuffer& b, DType work) {
  return static_cast<double>(UsedElements(b) * DTypeBytes(BenchDType(b.type, work)));
}

std::map<std::string, std::vector<double>> RandomInputs(const BenchOp& op, DType work, uint64_t seed) {
  std::map<std::string, std::vector<double>> inputs;
  for (const BenchBuffer& b : op.buffers) {
    if (!IsInput(b)) continue;
    std::vector<double>& values = inputs[b.name] = FirstValues(b, seed, UsedElements(b));
    Dispatch(BenchDType(b.type, work), [&]<class T>() {
      for (double& x : values) x = From(To<T>(x));
    });
  }
  return inputs;
}

size_t BenchWorkBytes(const BenchOp& op, DType work, DeviceKind kind) {
  const std::unique_ptr<Device> dry = MakeDryDevice(kind);
  std::map<std::string, Tensor> tensors;
  for (const BenchBuffer& b : op.buffers)
    tensors[b.name] = Tensor(nullptr, BenchDType(b.type, work), b.shape);
  Arena arena("benchmark workspace", dry.get());
  const BenchRun run(Stream(dry.get()), arena, tensors);
  for (const BenchCall& call : op.calls) call.run(run);
  return arena.high_water();
}

OpExecution::OpExecution(const BenchOp& op, DType work, Device& device,
                         const std::map<std::string, std::vector<double>>& inputs)
    : op_(op), work_type_(work), device_(device), work_("benchmark workspace", &device) {
  Make(op, work);
  for (const BenchBuffer& b : op.buffers) {
    const Tensor& t = tensors_.at(b.name);
    std::vector<unsigned char> bytes(static_cast<size_t>(t.bytes()), kPoison);
    if (const auto at = inputs.find(b.name); at != inputs.end()) {
      const std::vector<unsigned char> packed = Packed(at->second, t.dtype());
      std::copy(packed.begin(), packed.end(), bytes.begin());
    }
    if (!bytes.empty()) device_.CopyFromHost(t.data(), bytes.data(), bytes.size());
  }
}

OpExecution::OpExecution(const BenchOp& op, DType work, Device& device, uint64_t seed)
    : op_(op), work_type_(work), device_(device), work_("benchmark workspace", &device) {
  Make(op, work);
  for (const BenchBuffer& b : op.buffers) {
    if (!IsInput(b)) continue;
    const Tensor& t = tensors_.at(b.name);
    const int64_t n = UsedElements(b), listed = static_cast<int64_t>(b.values.size());
    const int64_t length = std::min(n, std::max(kBlock, listed));
    const std::vector<unsigned char> block = Packed(FirstValues(b, seed, length), t.dtype());
    for (int64_t at = 0; at < n; at += length) {
      const auto count = static_cast<size_t>(std::min(length, n - at) * DTypeBytes(t.dtype()));
      device_.CopyFromHost(static_cast<char*>(t.data()) + at * DTypeBytes(t.dtype()), block.data(), count);
    }
  }
}

OpExecution::~OpExecution() {
  for (void* p : owned_) device_.Free(p);
}

void OpExecution::Make(const BenchOp& op, DType work) {
  for (const BenchBuffer& b : op.buffers) {
    const DType type = BenchDType(b.type, work);
    const auto bytes = static_cast<size_t>(b.shape.elements() * DTypeBytes(type));
    owned_.push_back(device_.Allocate(std::max<size_t>(bytes, 1)));
    tensors_[b.name] = Tensor(owned_.back(), type, b.shape);
  }
  work_.Commit(BenchWorkBytes(op, work, device_.kind()));
  run_ = std::make_unique<BenchRun>(Stream(&device_), work_, tensors_);
}

const BenchBuffer& OpExecution::Declared(const std::string& name) const {
  for (const BenchBuffer& b : op_.buffers) {
    if (b.name == name) return b;
  }
  YM_CHECK(false, "a benched op has no tensor ", name);
  return op_.buffers.front();
}

std::vector<unsigned char> OpExecution::Bytes(const std::string& name) const {
  const Tensor& t = tensors_.at(name);
  std::vector<unsigned char> bytes(static_cast<size_t>(t.bytes()));
  if (!bytes.empty()) device_.CopyToHost(bytes.data(), t.data(), bytes.size());
  return bytes;
}

std::vector<double> OpExecution::Values(const std::string& name) const {
  const BenchBuffer& b = Declared(name);
  const std::vector<unsigned char> bytes = Bytes(name);
  if (b.decode) return b.decode(bytes.data());
  std::vector<double> values(static_cast<size_t>(UsedElements(b)));
  Dispatch(tensors_.at(name).dtype(), [&]<class T>() {
    for (size_t i = 0; i < values.size(); ++i) {
      T x;
      std::memcpy(&x, bytes.data() + i * sizeof(T), sizeof(T));
      values[i] = From(x);
    }
  });
  return values;
}

int64_t OpExecution::Touched(const std::string& name) const {
  const std::vector<unsigned char> bytes = Bytes(name);
  const auto used =
      static_cast<std::ptrdiff_t>(UsedElements(Declared(name)) * DTypeBytes(tensors_.at(name).dtype()));
  return std::count_if(bytes.begin() + used, bytes.end(), [](unsigned char c) { return c != kPoison; });
}

}  // namespace yardmaster
