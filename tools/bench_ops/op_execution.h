// File: tools/bench_ops/op_execution.h
//
// The tensors of a benched op on a device, and its calls over them.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tools/bench_ops/bench_op.h"

namespace yardmaster {

// The type of a buffer where the work type is `work`.
DType BenchDType(BenchType type, DType work);

// Bytes of the buffer's used entries, with kWork as `work`.
double UsedBytes(const BenchBuffer& buffer, DType work);

// Values of every input by name, dense, of the used entries: as a device that works in `work` will hold them,
// so that the reference starts from the same.
std::map<std::string, std::vector<double>> RandomInputs(const BenchOp& op, DType work, uint64_t seed);

// Workspace of all calls on a device of this kind, found on the dry device: it checks every shape, too.
size_t BenchWorkBytes(const BenchOp& op, DType work, DeviceKind kind);

class OpExecution {
 public:
  // Buffers hold `inputs`; outputs, and what lies beyond the used entries, hold bytes of 0xFF: NaN.
  OpExecution(const BenchOp& op, DType work, Device& device,
              const std::map<std::string, std::vector<double>>& inputs);
  // For timing: inputs hold a block of random values again and again; outputs are zero.
  OpExecution(const BenchOp& op, DType work, Device& device, uint64_t seed);
  ~OpExecution();
  OpExecution(const OpExecution&) = delete;
  OpExecution& operator=(const OpExecution&) = delete;

  void Run(const BenchCall& call) { call.run(*run_); }
  // The used entries of a buffer.
  std::vector<double> Values(const std::string& name) const;
  // Bytes beyond the used entries that no longer are what they were.
  int64_t Touched(const std::string& name) const;

 private:
  const BenchBuffer& Declared(const std::string& name) const;
  std::vector<unsigned char> Bytes(const std::string& name) const;
  void Make(const BenchOp& op, DType work);

  const BenchOp& op_;
  DType work_type_;
  Device& device_;
  Arena work_;
  std::map<std::string, Tensor> tensors_;
  std::vector<void*> owned_;
  std::unique_ptr<BenchRun> run_;
};

}  // namespace yardmaster
