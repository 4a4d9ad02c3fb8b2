// File: src/ops/cuda/cudnn_graph.h
//
// A small owner of cuDNN's backend descriptors: tensors and operations are added to a graph, Build() asks cuDNN's
// heuristics for engines in their order and takes the first that fits, and the plan runs with device pointers by tensor.
// cuDNN recognises attention by the pattern of these operations (sdpa_graphs.cc keeps the order of cudnn-frontend 1.23,
// MIT licence, https://github.com/NVIDIA/cudnn-frontend); it has no mask in a single attention operation before 9.21.
#pragma once

#include <cudnn.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace yardmaster::cuda {

// cuDNN cannot run what was asked for. Caught where there is another way.
class CudnnRefusal {
 public:
  explicit CudnnRefusal(std::string text) : text_(std::move(text)) {}
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

void CudnnCheck(cudnnStatus_t status, const char* what);  // throws CudnnRefusal with cuDNN's own explanation

class CudnnDescriptor {
 public:
  explicit CudnnDescriptor(cudnnBackendDescriptorType_t type);
  CudnnDescriptor(CudnnDescriptor&& o) noexcept : descriptor_(std::exchange(o.descriptor_, nullptr)) {}
  CudnnDescriptor& operator=(CudnnDescriptor&& o) noexcept {
    std::swap(descriptor_, o.descriptor_);
    return *this;
  }
  ~CudnnDescriptor();
  cudnnBackendDescriptor_t get() const { return descriptor_; }

  void Set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count, const void* values);
  void Set(cudnnBackendAttributeName_t name, const CudnnDescriptor& value);
  void Set(cudnnBackendAttributeName_t name, int64_t value) { Set(name, CUDNN_TYPE_INT64, 1, &value); }
  void Finalize();

 private:
  cudnnBackendDescriptor_t descriptor_ = nullptr;
};

using CudnnTensor = int64_t;  // unique id within a graph

// What Build() returns: runs any number of times, may be captured in a CUDA graph. Scalars are part of it.
class CudnnPlan {
 public:
  int64_t workspace_bytes() const { return workspace_bytes_; }
  const std::string& name() const { return name_; }  // "engine 5, workspace 1.2 GiB"
  void Execute(cudnnHandle_t handle, const std::vector<std::pair<CudnnTensor, void*>>& pointers, void* workspace) const;

 private:
  friend class CudnnGraph;
  explicit CudnnPlan(CudnnDescriptor plan) : plan_(std::move(plan)) {}
  CudnnDescriptor plan_;
  int64_t workspace_bytes_ = 0;
  std::string name_;
  std::map<CudnnTensor, std::unique_ptr<float>> scalars_;  // read at each Execute, from host memory
};

class CudnnGraph {
 public:
  using Dims = std::vector<int64_t>;
  CudnnTensor Real(cudnnDataType_t type, const Dims& dims, const Dims& strides);
  CudnnTensor Virtual(cudnnDataType_t type, const Dims& dims, const Dims& strides);
  CudnnTensor Virtual(cudnnDataType_t type, const Dims& dims);  // packed, last axis fastest
  CudnnTensor Scalar(float value);

  void Matmul(CudnnTensor a, CudnnTensor b, CudnnTensor c);
  void Pointwise(cudnnPointwiseMode_t mode, CudnnTensor x, CudnnTensor y, cudnnDataType_t compute = CUDNN_DATA_FLOAT);
  void Pointwise(cudnnPointwiseMode_t mode, CudnnTensor x, CudnnTensor b, CudnnTensor y, cudnnDataType_t compute);
  void Index(CudnnTensor like, int64_t axis, CudnnTensor y);
  void Select(CudnnTensor x, CudnnTensor b, CudnnTensor condition, CudnnTensor y);  // condition ? x : b
  void Reduce(cudnnReduceTensorOp_t op, CudnnTensor x, CudnnTensor y);
  void Reshape(CudnnTensor x, CudnnTensor y);  // the same elements seen with y's dims and strides

  // Engines whose workspace is over the limit, or that cuDNN marks as non-deterministic, are passed over; throws
  // CudnnRefusal if none is left. The graph is used up.
  CudnnPlan Build(cudnnHandle_t handle, int64_t max_workspace_bytes, bool deterministic);

 private:
  CudnnTensor Add(cudnnDataType_t type, const Dims& dims, const Dims& strides, bool is_virtual, bool by_value);
  CudnnDescriptor& Operation(cudnnBackendDescriptorType_t type);
  CudnnDescriptor PointwiseDescriptor(cudnnPointwiseMode_t mode, cudnnDataType_t compute, int64_t axis = -1);
  void SetTensor(CudnnDescriptor& op, cudnnBackendAttributeName_t name, CudnnTensor t);
  void FinishPointwise(CudnnDescriptor& op, CudnnDescriptor pointwise);

  std::vector<CudnnDescriptor> tensors_;  // tensor id i at i - 1
  std::vector<CudnnDescriptor> helpers_;  // descriptors that operations point to
  std::vector<CudnnDescriptor> operations_;
  std::map<CudnnTensor, std::unique_ptr<float>> scalars_;
};

}  // namespace yardmaster::cuda
