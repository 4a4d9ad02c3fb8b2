#include "src/ops/cuda/cudnn_graph.h"

#include "src/base/strings.h"

namespace yardmaster::cuda {

void CudnnCheck(cudnnStatus_t status, const char* what) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  char detail[512] = "";
  cudnnGetLastErrorString(detail, sizeof detail);
  throw CudnnRefusal(StrCat("cuDNN: ", what, ": ", cudnnGetErrorString(status), detail[0] ? ": " : "", detail));
}

CudnnDescriptor::CudnnDescriptor(cudnnBackendDescriptorType_t type) {
  CudnnCheck(cudnnBackendCreateDescriptor(type, &descriptor_), "create a descriptor");
}
CudnnDescriptor::~CudnnDescriptor() {
  if (descriptor_ != nullptr) static_cast<void>(cudnnBackendDestroyDescriptor(descriptor_));
}
void CudnnDescriptor::Set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                          const void* values) {
  const cudnnStatus_t status = cudnnBackendSetAttribute(descriptor_, name, type, count, values);
  if (status != CUDNN_STATUS_SUCCESS) CudnnCheck(status, StrCat("set attribute ", static_cast<int>(name)).c_str());
}
void CudnnDescriptor::Set(cudnnBackendAttributeName_t name, const CudnnDescriptor& value) {
  const cudnnBackendDescriptor_t raw = value.get();
  Set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &raw);
}
void CudnnDescriptor::Finalize() { CudnnCheck(cudnnBackendFinalize(descriptor_), "finalize a descriptor"); }

void CudnnPlan::Execute(cudnnHandle_t handle, const std::vector<std::pair<CudnnTensor, void*>>& pointers,
                        void* workspace) const {
  std::vector<int64_t> ids;
  std::vector<void*> data;
  for (const auto& [id, pointer] : pointers) {
    ids.push_back(id);
    data.push_back(pointer);
  }
  for (const auto& [id, value] : scalars_) {
    ids.push_back(id);
    data.push_back(value.get());
  }
  CudnnDescriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.Set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, static_cast<int64_t>(ids.size()), ids.data());
  pack.Set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, static_cast<int64_t>(data.size()), data.data());
  pack.Set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
  pack.Finalize();
  CudnnCheck(cudnnBackendExecute(handle, plan_.get(), pack.get()), "execute");
}

CudnnTensor CudnnGraph::Add(cudnnDataType_t type, const Dims& dims, const Dims& strides, bool is_virtual, bool by_value) {
  CudnnDescriptor t(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  const CudnnTensor id = static_cast<CudnnTensor>(tensors_.size()) + 1;
  constexpr int64_t kAlignment = 16;
  t.Set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
  t.Set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, static_cast<int64_t>(dims.size()), dims.data());
  t.Set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, static_cast<int64_t>(strides.size()), strides.data());
  t.Set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id);
  t.Set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, kAlignment);
  t.Set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
  if (by_value) t.Set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &by_value);
  t.Finalize();
  tensors_.push_back(std::move(t));
  return id;
}
CudnnTensor CudnnGraph::Real(cudnnDataType_t type, const Dims& dims, const Dims& strides) {
  return Add(type, dims, strides, false, false);
}
CudnnTensor CudnnGraph::Virtual(cudnnDataType_t type, const Dims& dims, const Dims& strides) {
  return Add(type, dims, strides, true, false);
}
CudnnTensor CudnnGraph::Virtual(cudnnDataType_t type, const Dims& dims) {
  Dims strides(dims.size(), 1);
  for (size_t i = dims.size() - 1; i > 0; --i) strides[i - 1] = strides[i] * dims[i];
  return Add(type, dims, strides, true, false);
}
CudnnTensor CudnnGraph::Scalar(float value) {
  const CudnnTensor id = Add(CUDNN_DATA_FLOAT, {1, 1, 1, 1}, {1, 1, 1, 1}, false, true);
  scalars_[id] = std::make_unique<float>(value);
  return id;
}

CudnnDescriptor& CudnnGraph::Operation(cudnnBackendDescriptorType_t type) { return operations_.emplace_back(type); }
void CudnnGraph::SetTensor(CudnnDescriptor& op, cudnnBackendAttributeName_t name, CudnnTensor t) {
  op.Set(name, tensors_[static_cast<size_t>(t - 1)]);
}

void CudnnGraph::Matmul(CudnnTensor a, CudnnTensor b, CudnnTensor c) {
  CudnnDescriptor matmul(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
  matmul.Set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
  matmul.Finalize();
  CudnnDescriptor& op = Operation(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  SetTensor(op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
  SetTensor(op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
  SetTensor(op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
  op.Set(CUDNN_ATTR_OPERATION_MATMUL_DESC, matmul);
  op.Finalize();
  helpers_.push_back(std::move(matmul));
}

CudnnDescriptor CudnnGraph::PointwiseDescriptor(cudnnPointwiseMode_t mode, cudnnDataType_t compute, int64_t axis) {
  CudnnDescriptor d(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  d.Set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
  d.Set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &compute);
  if (axis >= 0) d.Set(CUDNN_ATTR_POINTWISE_AXIS, axis);
  d.Finalize();
  return d;
}
void CudnnGraph::FinishPointwise(CudnnDescriptor& op, CudnnDescriptor pointwise) {
  op.Set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, pointwise);
  const float one = 1;
  op.Set(CUDNN_ATTR_OPERATION_POINTWISE_ALPHA1, CUDNN_TYPE_FLOAT, 1, &one);
  op.Set(CUDNN_ATTR_OPERATION_POINTWISE_ALPHA2, CUDNN_TYPE_FLOAT, 1, &one);
  op.Finalize();
  helpers_.push_back(std::move(pointwise));
}
void CudnnGraph::Pointwise(cudnnPointwiseMode_t mode, CudnnTensor x, CudnnTensor y, cudnnDataType_t compute) {
  CudnnDescriptor& op = Operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  SetTensor(op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
  SetTensor(op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
  FinishPointwise(op, PointwiseDescriptor(mode, compute));
}
void CudnnGraph::Pointwise(cudnnPointwiseMode_t mode, CudnnTensor x, CudnnTensor b, CudnnTensor y, cudnnDataType_t compute) {
  CudnnDescriptor& op = Operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  SetTensor(op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
  SetTensor(op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
  SetTensor(op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
  FinishPointwise(op, PointwiseDescriptor(mode, compute));
}
void CudnnGraph::Index(CudnnTensor like, int64_t axis, CudnnTensor y) {
  CudnnDescriptor& op = Operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  SetTensor(op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, like);
  SetTensor(op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
  FinishPointwise(op, PointwiseDescriptor(CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT, axis));
}
void CudnnGraph::Select(CudnnTensor x, CudnnTensor b, CudnnTensor condition, CudnnTensor y) {
  CudnnDescriptor& op = Operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  SetTensor(op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
  SetTensor(op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
  SetTensor(op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, condition);
  SetTensor(op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
  FinishPointwise(op, PointwiseDescriptor(CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT));
}
void CudnnGraph::Reduce(cudnnReduceTensorOp_t reduction, CudnnTensor x, CudnnTensor y) {
  CudnnDescriptor d(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
  d.Set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
  d.Set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &reduction);
  d.Finalize();
  CudnnDescriptor& op = Operation(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  op.Set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, d);
  SetTensor(op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
  SetTensor(op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
  op.Finalize();
  helpers_.push_back(std::move(d));
}
void CudnnGraph::Reshape(CudnnTensor x, CudnnTensor y) {
  CudnnDescriptor& op = Operation(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
  SetTensor(op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
  SetTensor(op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
  op.Finalize();
}

namespace {

// The engine's number, and whether cuDNN says that its results may differ from run to run.
std::pair<int64_t, bool> EngineOf(const CudnnDescriptor& config) {
  CudnnDescriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t raw = engine.get();
  int64_t count = 0, index = -1;
  CudnnCheck(cudnnBackendGetAttribute(config.get(), CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &raw),
             "engine of a configuration");
  CudnnCheck(cudnnBackendGetAttribute(raw, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &count, &index), "engine index");
  cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
  CudnnCheck(cudnnBackendGetAttribute(raw, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                      CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count, notes), "engine notes");
  bool varies = false;
  for (int64_t i = 0; i < count; ++i) varies = varies || notes[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
  return {index, varies};
}

}  // namespace

CudnnPlan CudnnGraph::Build(cudnnHandle_t handle, int64_t max_workspace_bytes, bool deterministic) {
  std::vector<cudnnBackendDescriptor_t> raw;
  for (const CudnnDescriptor& op : operations_) raw.push_back(op.get());
  CudnnDescriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  graph.Set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, static_cast<int64_t>(raw.size()), raw.data());
  graph.Set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
  graph.Finalize();

  CudnnDescriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
  heuristics.Set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  heuristics.Set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
  heuristics.Finalize();
  int64_t count = 0;
  CudnnCheck(cudnnBackendGetAttribute(heuristics.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count,
                                      nullptr), "count engines");
  std::vector<CudnnDescriptor> configs;
  std::vector<cudnnBackendDescriptor_t> raw_configs;
  for (int64_t i = 0; i < count; ++i) {
    configs.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    raw_configs.push_back(configs.back().get());
  }
  if (count > 0) {
    CudnnCheck(cudnnBackendGetAttribute(heuristics.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, count,
                                        &count, raw_configs.data()), "list engines");
  }
  std::string why = "cuDNN has no engine for it";
  for (int64_t i = 0; i < count; ++i) {
    try {
      const auto [index, varies] = EngineOf(configs[static_cast<size_t>(i)]);
      if (varies && deterministic) {
        why = StrCat("cuDNN: engine ", index, " is not deterministic");
        continue;
      }
      CudnnDescriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
      plan.Set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
      plan.Set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configs[static_cast<size_t>(i)]);
      plan.Finalize();
      int64_t bytes = 0, n = 0;
      CudnnCheck(cudnnBackendGetAttribute(plan.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &n, &bytes),
                 "workspace size");
      if (bytes > max_workspace_bytes) {
        why = StrCat("cuDNN: engine ", index, " wants ", HumanBytes(static_cast<double>(bytes)), " of workspace, there are ",
                     HumanBytes(static_cast<double>(max_workspace_bytes)));
        continue;
      }
      CudnnPlan result(std::move(plan));
      result.workspace_bytes_ = bytes;
      result.name_ = StrCat("engine ", index, ", workspace ", HumanBytes(static_cast<double>(bytes)));
      result.scalars_ = std::move(scalars_);
      return result;
    } catch (const CudnnRefusal& e) {
      why = e.text();
    }
  }
  throw CudnnRefusal(why);
}

}  // namespace yardmaster::cuda
