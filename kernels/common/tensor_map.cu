// File: kernels/common/tensor_map.cu
#include <cudaTypedefs.h>

#include "kernels/common/tensor_map.h"

namespace yardmaster {

namespace {

PFN_cuTensorMapEncodeTiled_v12000 FindEncoder() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function,
                                                             12000, cudaEnableDefault, &found);
  if (error != cudaSuccess || found != cudaDriverEntryPointSuccess) return nullptr;
  return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function);
}

}  // namespace

cudaError_t EncodeTensorMap(const TensorMapDesc& desc, CUtensorMap* map) {
  static const PFN_cuTensorMapEncodeTiled_v12000 encode = FindEncoder();
  if (encode == nullptr) return cudaErrorNotSupported;
  const cuuint32_t element_strides[3] = {1, 1, 1};
  const CUresult result =
      encode(map, desc.type, 3, const_cast<void*>(desc.base), desc.extent, desc.stride, desc.box,
             element_strides, CU_TENSOR_MAP_INTERLEAVE_NONE,
             desc.swizzle128 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_NONE,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

TensorMapDesc RaggedRowsMap(const void* matrix, CUtensorMapDataType type, int element_bytes,
                            int64_t rows, int64_t columns, int box_columns, int box_rows) {
  const uint64_t pitch = static_cast<uint64_t>(columns) * element_bytes;
  TensorMapDesc desc;
  desc.type = type;
  desc.base = reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(matrix) - pitch * box_rows);
  desc.extent[0] = columns;
  desc.extent[1] = box_rows;
  desc.extent[2] = rows + box_rows + 1;
  desc.stride[0] = pitch;
  desc.stride[1] = pitch;
  desc.box[0] = box_columns;
  desc.box[1] = box_rows;
  desc.box[2] = 1;
  return desc;
}

TensorMapDesc DenseMap(const void* tensor, CUtensorMapDataType type, int element_bytes,
                       int64_t outer, int64_t rows, int64_t columns, int box_columns,
                       int box_rows) {
  const uint64_t pitch = static_cast<uint64_t>(columns) * element_bytes;
  TensorMapDesc desc;
  desc.type = type;
  desc.base = tensor;
  desc.extent[0] = columns;
  desc.extent[1] = rows;
  desc.extent[2] = outer;
  desc.stride[0] = pitch;
  desc.stride[1] = pitch * rows;
  desc.box[0] = box_columns;
  desc.box[1] = box_rows;
  desc.box[2] = 1;
  return desc;
}

}  // namespace yardmaster
