// File: kernels/common/tensor_map.h
//
// Host side of the tensor copy engine (TMA): builds the 128-byte maps that kernels take as
// __grid_constant__ arguments. Building one is plain arithmetic in the driver (about a
// microsecond); nothing is allocated or synchronised. The driver's function is looked up through
// the runtime, so nothing links libcuda.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace yardmaster {

// A box of a rank-3 tensor, innermost dimension first. extent and box are in elements, stride (of
// dimensions 1 and 2) in bytes, a multiple of 16; the inner box is at most 128 bytes when swizzled.
struct TensorMapDesc {
  CUtensorMapDataType type = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  const void* base = nullptr;
  uint64_t extent[3] = {1, 1, 1};
  uint64_t stride[2] = {16, 16};
  uint32_t box[3] = {1, 1, 1};
  bool swizzle128 = true;
};

// cudaErrorInvalidValue where the driver refuses the description.
cudaError_t EncodeTensorMap(const TensorMapDesc& desc, CUtensorMap* map);

// A map over the rows of a [rows, columns] matrix that can be cut at any row by its coordinates
// alone, so that one map made on the host serves experts whose boundaries only the device knows.
// Dimensions 1 and 2 both step by one row, and dimension 1 has the extent `box_rows`: the box that
// starts at
//   (column, box_rows - valid, row + valid)
// covers the rows row, row + 1, ..., and ends after `valid` of them: the rest lies outside
// dimension 1, so it is read as zeros without touching memory, and is not written. The base lies
// box_rows rows before the matrix, where there may be no memory. No element is read there, but the
// copy engine touches the base for a box that lies outside the map altogether (seen on an H200: an
// illegal address where the matrix began a mapped range), so such boxes must not be asked for:
// 1 <= valid <= box_rows, column < columns.
TensorMapDesc RaggedRowsMap(const void* matrix, CUtensorMapDataType type, int element_bytes,
                            int64_t rows, int64_t columns, int box_columns, int box_rows);

// [outer, rows, columns], row-major and dense.
TensorMapDesc DenseMap(const void* tensor, CUtensorMapDataType type, int element_bytes,
                       int64_t outer, int64_t rows, int64_t columns, int box_columns, int box_rows);

}  // namespace yardmaster
