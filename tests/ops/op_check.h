// File: tests/ops/op_check.h
//
// One declaration per op gives, through CheckOp:
//   accuracy     F64 against an independent implementation in the test, F32 against F64 on the same inputs (relative L2)
//   gradient     backward in F64 against central differences of a random linear functional of the outputs
//   bits         runs with 1 and 3 threads, and with outputs poisoned and not, agree bit for bit
//   extent       rows beyond `used_rows` and padding between strided rows are neither read (they hold NaN) nor written
// With CheckOpsOn(device) the same declarations are checked on that device instead: F64, F32 and, where the declaration says
// so, BF16, each against F64 on the cpu device from the same (rounded) inputs; bits and extent as above.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/device/arena.h"
#include "src/device/device.h"

namespace yardmaster::testing {

// Values by tensor name, dense and row-major, whatever the layout and type in the op.
using OpValues = std::map<std::string, std::vector<double>>;

struct OpInput {
  std::string name;
  Shape shape;
  std::vector<double> values;       // rounded to float, so that F32 and F64 runs see the same; may be of used rows alone
  bool differentiable = true;
  DType type = DType::kF32;         // kF32 and kF64 stand for the type of the run
  int64_t padding = 0;              // elements between rows
  int64_t used_rows = -1;           // -1: all
  bool accum = false;               // in the accumulator type: F32 in a BF16 run
  bool main_gradient = false;       // "d.<name>" is in the accumulator type
};

struct OpOutput {
  std::string name;
  Shape shape;
  bool differentiable = true;       // false: kept for backward, or integer
  DType type = DType::kF32;
  int64_t padding = 0;
  int64_t used_rows = -1;
  bool accum = false;
};

// Device memory of one run. In forward: inputs and outputs by name. In backward: these, "d.<output>" with the cotangents,
// and "d.<input>" for every differentiable input, to be overwritten.
class OpRun {
 public:
  virtual ~OpRun() = default;
  virtual Tensor operator[](const std::string& name) const = 0;
  virtual const Stream& stream() const = 0;
  virtual Arena& work() const = 0;
  // A tensor beside the declared ones, alive until the run is gone.
  virtual Tensor Scratch(DType type, const Shape& shape, const std::vector<double>& values) const = 0;
  // Any tensor of this run from and to the host, on every device.
  virtual std::vector<double> Values(const Tensor& t) const = 0;
  virtual void Set(const Tensor& t, const std::vector<double>& values) const = 0;
};

struct OpDeclaration {
  std::string name;
  std::vector<OpInput> inputs;
  std::vector<OpOutput> outputs;
  std::function<void(const OpRun&)> forward;
  std::function<void(const OpRun&)> backward = {};
  std::function<void(const OpValues& inputs, OpValues& outputs)> reference = {};  // fills every output
  double tolerance_f32 = 2e-6;   // relative L2 of F32 against F64, forward and backward
  double tolerance_f64 = 1e-13;  // relative L2 of F64 against the reference: another order of the same sums
  double tolerance_gradient = 1e-7;  // of the directional derivative, relative to the gradient's L2 norm
  double difference_step = 1e-3;     // of the four-point central difference, error of order step^4
  bool bf16 = false;                 // on cuda, BF16 too
  double tolerance_bf16 = 1e-2;      // relative L2: BF16 operands and outputs, FP32 sums; typically 4e-3
  double tolerance_device_f32 = 1e-5;  // of another device in F32 against F64: no TF32, another order
  double rms_floor = 0;              // root mean square under which differences on another device do not count
};

void CheckOp(const OpDeclaration& declaration);

// From here on CheckOp checks on the device that `make` returns (asked once; it lives to the end of the program). Null: there
// is none, and the test case is marked as skipped with `reason`.
void CheckOpsOn(std::function<std::unique_ptr<Device>(std::string* reason)> make);

// n uniform values in [low, high), by name: two tensors of one test differ.
std::vector<double> RandomValues(const std::string& name, int64_t n, double low = -1, double high = 1);

double RelativeL2(const std::vector<double>& a, const std::vector<double>& b);  // NaN anywhere: infinite

// A cpu device with a committed work arena, and host values in and out, for tests that CheckOp does not fit.
class CpuFixture {
 public:
  explicit CpuFixture(int threads = 2);
  const Stream& stream() const { return stream_; }
  Arena& work() { return work_; }
  Tensor Make(DType type, const Shape& shape, const std::vector<double>& values = {});  // zeros without values
  Device& device() { return *device_; }

 private:
  std::unique_ptr<Device> device_;
  Stream stream_;
  Arena work_, tensors_;
};

std::vector<double> ValuesOf(const Tensor& t);                 // any type and ld
void SetValues(const Tensor& t, const std::vector<double>& values);
std::string BytesOf(const Tensor& t);                          // contiguous

}  // namespace yardmaster::testing
