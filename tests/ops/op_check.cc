#include "tests/ops/op_check.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "src/base/philox.h"
#include "tests/catch.h"

namespace yardmaster::testing {
namespace {

constexpr size_t kWorkBytes = size_t{16} << 20;
constexpr size_t kReferenceWorkBytes = size_t{256} << 20;  // of the cpu device for shapes that suit another device
constexpr size_t kDeviceWorkBytes = size_t{5} << 29;  // attention on cuda plans 2 GiB
constexpr size_t kRawWorkBytes = size_t{128} << 20;   // of each run under initcheck, which keeps as much again

bool IsFloat(DType t) { return t == DType::kF32 || t == DType::kF64 || t == DType::kBF16; }

template <class F>
void Dispatch(DType t, F&& f) {
  switch (t) {
    case DType::kU8: return f.template operator()<uint8_t>();
    case DType::kU16: return f.template operator()<uint16_t>();
    case DType::kI32: return f.template operator()<int32_t>();
    case DType::kI64: return f.template operator()<int64_t>();
    case DType::kF32: return f.template operator()<float>();
    case DType::kF64: return f.template operator()<double>();
    case DType::kBF16: return f.template operator()<BFloat16>();
  }
}

double RoundToFloat(double x) { return static_cast<double>(static_cast<float>(x)); }
double RoundToBf16(double x) { return static_cast<double>(static_cast<float>(BFloat16(static_cast<float>(x)))); }

struct OtherDevice {
  std::function<std::unique_ptr<Device>(std::string*)> make;
  bool asked = false;
  std::unique_ptr<Device> device;
  std::unique_ptr<Arena> work;  // one for all executions: many processes share a GPU under compute-sanitizer
  std::unique_ptr<Device> reference;  // the cpu device that it is compared with
  std::unique_ptr<Arena> reference_work;  // poisoned once, not in every execution
  std::string reason;
};
OtherDevice& TheOtherDevice() {
  static OtherDevice other;
  return other;
}

// Memory of a tensor with padded rows, all of it set to one byte first.
class Buffer {
 public:
  Buffer(DType type, const Shape& shape, int64_t padding, unsigned char fill)
      : fill_(fill), used_cols_(shape[-1]) {
    std::vector<int64_t> dims = shape.vector();
    dims.back() += padding;
    storage_ = HostTensor(type, Shape(dims));
    std::memset(storage_.view().data(), fill, static_cast<size_t>(storage_.view().bytes()));
  }
  Tensor view() const { return storage_.view().Cols(0, used_cols_); }
  Tensor all() const { return storage_.view(); }  // with the padding
  // Bytes outside the first `rows` rows and the used columns still are what they were.
  bool OutsideUntouched(int64_t rows) const {
    const Tensor all = storage_.view();
    const int64_t size = DTypeBytes(all.dtype());
    const unsigned char* bytes = static_cast<const unsigned char*>(all.data());
    for (int64_t r = 0; r < all.rows(); ++r) {
      for (int64_t i = r < rows ? used_cols_ * size : 0; i < all.cols() * size; ++i) {
        if (bytes[r * all.cols() * size + i] != fill_) return false;
      }
    }
    return true;
  }

 private:
  unsigned char fill_;
  int64_t used_cols_;
  HostTensor storage_;
};

std::vector<double> FirstRows(std::vector<double> values, const Shape& shape, int64_t rows) {
  if (rows >= 0) values.resize(static_cast<size_t>(rows * shape[-1]));
  return values;
}

// One execution in one type: buffers made anew. On another device every buffer has a twin there.
class Execution : public OpRun {
 public:
  Execution(const OpDeclaration& op, DType type, int threads, unsigned char poison)
      : op_(op), type_(type), poison_(poison), own_device_(MakeCpuDevice({.threads = threads})), device_(own_device_.get()),
        stream_(device_), own_work_(std::make_unique<Arena>("work", device_)), work_(*own_work_) {
    work_.set_poison(true);
    work_.Commit(kWorkBytes);
  }
  // On another device, or on a cpu device that many executions share. With no `work`, one of its own, so that
  // initcheck sees it untouched.
  Execution(const OpDeclaration& op, DType type, Device& device, Arena* work, unsigned char poison)
      : op_(op), type_(type), poison_(poison), device_(&device), stream_(device_),
        own_work_(work == nullptr ? std::make_unique<Arena>("work", device_) : nullptr),
        work_(work == nullptr ? *own_work_ : *work) {
    if (own_work_ != nullptr) own_work_->Commit(kRawWorkBytes);
  }
  Tensor operator[](const std::string& name) const override {
    const auto it = buffers_.find(name);
    YM_CHECK(it != buffers_.end(), "no tensor ", name, " in ", op_.name);
    return it->second.on_device;
  }
  const Stream& stream() const override { return stream_; }
  Arena& work() const override { return work_; }
  Tensor Scratch(DType type, const Shape& shape, const std::vector<double>& values) const override {
    const std::string name = "scratch " + std::to_string(buffers_.size());
    Add(name, type, shape, 0, 0, values);
    return buffers_.at(name).on_device;
  }
  std::vector<double> Values(const Tensor& t) const override {
    const Twin& b = TwinOf(t);
    FromDevice(b);
    return ValuesOf(b.host.view());
  }
  void Set(const Tensor& t, const std::vector<double>& values) const override {
    const Twin& b = TwinOf(t);
    FromDevice(b);
    SetValues(b.host.view(), values);
    ToDevice(b);
  }

  OpValues Forward(const OpValues& inputs) {
    for (const OpInput& in : op_.inputs) {
      Add(in.name, TypeOf(in.type, in.accum), in.shape, in.padding, 0xFF, inputs.at(in.name));
    }
    for (const OpOutput& out : op_.outputs) {
      Add(out.name, TypeOf(out.type, out.accum), out.shape, out.padding, poison_, {});
    }
    op_.forward(*this);
    OpValues values;
    for (const OpOutput& out : op_.outputs) values[out.name] = Take(out.name, out.shape, out.used_rows);
    return values;
  }

  // After Forward.
  OpValues Backward(const OpValues& cotangents) {
    for (const OpOutput& out : op_.outputs) {
      if (out.differentiable) Add("d." + out.name, TypeOf(out.type, out.accum), out.shape, 0, 0xFF, cotangents.at(out.name));
    }
    for (const OpInput& in : op_.inputs) {
      if (in.differentiable) {
        Add("d." + in.name, TypeOf(in.type, in.accum || in.main_gradient), in.shape, in.padding, poison_, {});
      }
    }
    op_.backward(*this);
    OpValues values;
    for (const OpInput& in : op_.inputs) {
      if (in.differentiable) values[in.name] = Take("d." + in.name, in.shape, in.used_rows);
    }
    return values;
  }

 private:
  struct DeviceFree {
    Device* device;
    void operator()(void* p) const { device->Free(p); }
  };
  struct Twin {
    Buffer host;
    std::unique_ptr<void, DeviceFree> memory;  // none on the cpu device
    Tensor on_device;
  };
  DType TypeOf(DType declared, bool accum) const {
    if (declared != DType::kF32 && declared != DType::kF64) return declared;
    return type_ == DType::kBF16 && accum ? DType::kF32 : type_;
  }
  void Add(const std::string& name, DType type, const Shape& shape, int64_t padding, unsigned char fill,
           const std::vector<double>& values) const {
    Buffer host(type, shape, padding, fill);
    SetValues(host.view(), values);
    Twin twin{std::move(host), {nullptr, DeviceFree{device_}}, Tensor()};
    const Tensor all = twin.host.all();
    if (device_->kind() == DeviceKind::kCpu) {
      twin.on_device = twin.host.view();
    } else {
      twin.memory.reset(device_->Allocate(static_cast<size_t>(all.bytes())));
      twin.on_device = Tensor(twin.memory.get(), type, all.shape()).Cols(0, shape[-1]);
      ToDevice(twin);
    }
    buffers_.insert_or_assign(name, std::move(twin));
  }
  const Twin& TwinOf(const Tensor& t) const {
    for (const auto& [name, b] : buffers_) {
      if (b.on_device.data() == t.data() && b.on_device.shape() == t.shape()) return b;
    }
    YM_CHECK(false, "a tensor of ", t.shape(), " that is not of this run");
    return buffers_.begin()->second;
  }
  void ToDevice(const Twin& b) const {
    if (b.memory == nullptr) return;
    device_->CopyFromHost(b.memory.get(), b.host.all().data(), static_cast<size_t>(b.host.all().bytes()));
  }
  void FromDevice(const Twin& b) const {
    if (b.memory == nullptr) return;
    device_->CopyToHost(b.host.all().data(), b.memory.get(), static_cast<size_t>(b.host.all().bytes()));
  }
  std::vector<double> Take(const std::string& name, const Shape& shape, int64_t used_rows) {
    const Twin& b = buffers_.at(name);
    FromDevice(b);
    INFO(name);
    CHECK(b.host.OutsideUntouched(used_rows >= 0 ? used_rows : b.host.view().rows()));
    return FirstRows(ValuesOf(b.host.view()), shape, used_rows);
  }

  const OpDeclaration& op_;
  DType type_;
  unsigned char poison_;
  std::unique_ptr<Device> own_device_;
  Device* device_;
  Stream stream_;
  std::unique_ptr<Arena> own_work_;
  Arena& work_;
  mutable std::map<std::string, Twin> buffers_;
};

bool SameBits(const OpValues& a, const OpValues& b) {
  for (const auto& [name, values] : a) {
    const std::vector<double>& other = b.at(name);
    if (values.size() != other.size()) return false;
    if (!values.empty() && std::memcmp(values.data(), other.data(), values.size() * sizeof(double)) != 0) return false;
  }
  return true;
}

double Functional(const OpDeclaration& op, const OpValues& outputs, const OpValues& cotangents) {
  long double sum = 0;
  for (const OpOutput& out : op.outputs) {
    if (!out.differentiable) continue;
    const std::vector<double>& y = outputs.at(out.name);
    const std::vector<double>& c = cotangents.at(out.name);
    for (size_t i = 0; i < y.size(); ++i) sum += static_cast<long double>(y[i]) * c[i];
  }
  return static_cast<double>(sum);
}

void CheckGradient(const OpDeclaration& op, const OpValues& inputs, const OpValues& cotangents, const OpValues& gradients) {
  Execution run(op, DType::kF64, 1, 0xFF);
  for (const OpInput& in : op.inputs) {
    if (!in.differentiable || inputs.at(in.name).empty()) continue;
    const std::vector<double>& g = gradients.at(in.name);
    double norm = 0;
    for (double x : g) norm += x * x;
    norm = std::sqrt(norm);
    for (int direction = 0; direction < 3; ++direction) {
      // Every coordinate moves by +-1, so no wrong coordinate hides.
      std::vector<double> u(g.size());
      double expected = 0;
      for (size_t i = 0; i < u.size(); ++i) {
        u[i] = Philox4x32(static_cast<uint64_t>(direction), StreamOf(in.name.c_str()), i)[0] & 1 ? 1 : -1;
        expected += g[i] * u[i];
      }
      const auto value_at = [&](double step) {
        OpValues moved = inputs;
        for (size_t i = 0; i < u.size(); ++i) moved[in.name][i] += step * u[i];
        return Functional(op, run.Forward(moved), cotangents);
      };
      const double h = op.difference_step;
      const double measured = (8 * (value_at(h) - value_at(-h)) - (value_at(2 * h) - value_at(-2 * h))) / (12 * h);
      INFO("gradient of " << in.name << ", direction " << direction << ": " << expected << ", by differences " << measured
                          << ", norm of the gradient " << norm);
      CHECK(std::fabs(measured - expected) <= op.tolerance_gradient * norm + 1e-11);
    }
  }
}

// Relative to the expected values, or to the floor where these are smaller.
double DeviceError(const OpDeclaration& op, const std::vector<double>& got, const std::vector<double>& expected) {
  const double error = RelativeL2(got, expected);
  if (op.rms_floor == 0 || got.size() != expected.size()) return error;
  double difference = 0, norm = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    difference += (got[i] - expected[i]) * (got[i] - expected[i]);
    norm += expected[i] * expected[i];
  }
  const double floor = op.rms_floor * std::sqrt(static_cast<double>(got.size()));
  return std::isnan(difference) ? error : std::sqrt(difference) / std::max(std::sqrt(norm), floor);
}

void CheckOnDevice(const OpDeclaration& op, const OpValues& float_inputs, const OpValues& float_cotangents,
                   OtherDevice& other) {
  Device& device = *other.device;
  Arena* const work = other.work.get();
  for (const DType type : {DType::kF64, DType::kF32, DType::kBF16}) {
    if (type == DType::kBF16 && !op.bf16) continue;
    INFO("type " << DTypeName(type) << " on " << device.description());
    OpValues inputs = float_inputs, cotangents = float_cotangents;
    if (type == DType::kBF16) {
      for (const OpInput& in : op.inputs) {
        if (IsFloat(in.type) && !in.accum) for (double& x : inputs[in.name]) x = RoundToBf16(x);
      }
      for (const OpOutput& out : op.outputs) {
        if (out.differentiable && !out.accum) for (double& x : cotangents[out.name]) x = RoundToBf16(x);
      }
    }
    Execution cpu(op, DType::kF64, *other.reference, other.reference_work.get(), 0xFF),
        first(op, type, device, work, 0xFF), second(op, type, device, work, 0x11);
    const double tolerance = type == DType::kBF16 ? op.tolerance_bf16 : type == DType::kF32 ? op.tolerance_device_f32 : 1e-12;
    const OpValues expected = cpu.Forward(inputs), outputs = first.Forward(inputs);
    CHECK(SameBits(outputs, second.Forward(inputs)));
    for (const OpOutput& out : op.outputs) {
      const double error = DeviceError(op, outputs.at(out.name), expected.at(out.name));
      INFO("output " << out.name << ": relative L2 " << error);
      CHECK(error <= (IsFloat(out.type) ? tolerance : 0.0));
    }
    if (!op.backward) continue;
    const OpValues wanted = cpu.Backward(cotangents), gradients = first.Backward(cotangents);
    CHECK(SameBits(gradients, second.Backward(cotangents)));
    for (const auto& [name, values] : wanted) {
      const double error = DeviceError(op, gradients.at(name), values);
      INFO("gradient of " << name << ": relative L2 " << error);
      CHECK(error <= tolerance);
    }
  }
}

}  // namespace

void CheckOpsOn(std::function<std::unique_ptr<Device>(std::string* reason)> make) { TheOtherDevice().make = std::move(make); }

void CheckOp(const OpDeclaration& op) {
  INFO("op " << op.name);
  OpValues inputs, cotangents;
  for (const OpInput& in : op.inputs) {
    std::vector<double> values = in.values;
    for (double& x : values) x = IsFloat(in.type) ? RoundToFloat(x) : x;
    inputs[in.name] = FirstRows(values, in.shape, in.used_rows);
  }
  for (const OpOutput& out : op.outputs) {
    if (!out.differentiable) continue;
    const int64_t n = out.used_rows >= 0 ? out.used_rows * out.shape[-1] : out.shape.elements();
    cotangents[out.name] = RandomValues("cotangent " + out.name, n);
    for (double& x : cotangents[out.name]) x = RoundToFloat(x);
  }

  if (OtherDevice& other = TheOtherDevice(); other.make) {
    if (!other.asked) other.device = other.make(&other.reason), other.asked = true;
    if (other.device == nullptr) return MarkSkipped(other.reason);
    if (other.work == nullptr && std::getenv("YM_TEST_RAW_MEMORY") == nullptr) {
      other.work = std::make_unique<Arena>("work", other.device.get());
      other.work->Commit(kDeviceWorkBytes);
    }
    if (other.reference == nullptr) {
      other.reference = MakeCpuDevice({.threads = 0});
      other.reference_work = std::make_unique<Arena>("reference work", other.reference.get());
      other.reference_work->set_poison(true);
      other.reference_work->Commit(kReferenceWorkBytes);
    }
    return CheckOnDevice(op, inputs, cotangents, other);
  }

  std::map<DType, OpValues> outputs, gradients;
  for (const DType type : {DType::kF64, DType::kF32}) {
    INFO("type " << DTypeName(type));
    Execution first(op, type, 1, 0xFF), second(op, type, 3, 0x11);
    outputs[type] = first.Forward(inputs);
    CHECK(SameBits(outputs[type], second.Forward(inputs)));
    if (op.backward) {
      gradients[type] = first.Backward(cotangents);
      CHECK(SameBits(gradients[type], second.Backward(cotangents)));
    }
  }
  if (op.reference) {
    OpValues expected;
    op.reference(inputs, expected);
    for (const OpOutput& out : op.outputs) {
      INFO("output " << out.name << " against the reference");
      const std::vector<double> used = FirstRows(expected.at(out.name), out.shape, out.used_rows);
      CHECK(RelativeL2(outputs[DType::kF64].at(out.name), used) <= op.tolerance_f64);
    }
  }
  for (const OpOutput& out : op.outputs) {
    INFO("output " << out.name << ", F32 against F64");
    const double tolerance = IsFloat(out.type) ? op.tolerance_f32 : 0.0;
    CHECK(RelativeL2(outputs[DType::kF32].at(out.name), outputs[DType::kF64].at(out.name)) <= tolerance);
  }
  if (!op.backward) return;
  for (const auto& [name, values] : gradients[DType::kF64]) {
    INFO("gradient of " << name << ", F32 against F64");
    CHECK(RelativeL2(gradients[DType::kF32].at(name), values) <= op.tolerance_f32);
  }
  CheckGradient(op, inputs, cotangents, gradients[DType::kF64]);
}

std::vector<double> RandomValues(const std::string& name, int64_t n, double low, double high) {
  std::vector<double> out(static_cast<size_t>(n));
  for (size_t i = 0; i < out.size(); ++i) out[i] = low + (high - low) * PhiloxUniform(7, StreamOf(name.c_str()), i);
  return out;
}

double RelativeL2(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double difference = 0, norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  if (difference == 0) return 0;
  const double relative = std::sqrt(difference / norm);
  return std::isnan(relative) ? std::numeric_limits<double>::infinity() : relative;
}

CpuFixture::CpuFixture(int threads)
    : device_(MakeCpuDevice({.threads = threads})), stream_(device_.get()), work_("work", device_.get()),
      tensors_("tensors", device_.get()) {
  work_.set_poison(true);
  work_.Commit(kWorkBytes);
  tensors_.Commit(kWorkBytes);
}

Tensor CpuFixture::Make(DType type, const Shape& shape, const std::vector<double>& values) {
  const Tensor t = tensors_.Allocate("test tensor", type, shape);
  if (values.empty()) {
    if (t.elements()) std::memset(t.data(), 0, static_cast<size_t>(t.bytes()));
  } else {
    SetValues(t, values);
  }
  return t;
}

std::vector<double> ValuesOf(const Tensor& t) {
  std::vector<double> out;
  Dispatch(t.dtype(), [&]<class T>() {
    for (int64_t r = 0; r < t.rows(); ++r) {
      for (int64_t c = 0; c < t.cols(); ++c) {
        const T x = t.as<T>()[r * t.ld() + c];
        if constexpr (std::is_same_v<T, BFloat16>) {
          out.push_back(static_cast<float>(x));
        } else {
          out.push_back(static_cast<double>(x));
        }
      }
    }
  });
  return out;
}

void SetValues(const Tensor& t, const std::vector<double>& values) {
  YM_CHECK_LE(static_cast<int64_t>(values.size()), t.elements());
  Dispatch(t.dtype(), [&]<class T>() {
    for (size_t i = 0; i < values.size(); ++i) {
      const int64_t at = static_cast<int64_t>(i) / t.cols() * t.ld() + static_cast<int64_t>(i) % t.cols();
      if constexpr (std::is_same_v<T, BFloat16>) {
        t.as<T>()[at] = BFloat16(static_cast<float>(values[i]));
      } else {
        t.as<T>()[at] = static_cast<T>(values[i]);
      }
    }
  });
}

std::string BytesOf(const Tensor& t) {
  YM_CHECK(t.contiguous());
  return std::string(static_cast<const char*>(t.data()), static_cast<size_t>(t.bytes()));
}

}  // namespace yardmaster::testing
