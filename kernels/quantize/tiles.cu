#include "kernels/common/ragged.cuh"
#include "kernels/quantize/quantize.h"

namespace yardmaster {
namespace {

// A block per tile of 128 rows x 4 scales, a thread per row.
__global__ void __launch_bounds__(kRaggedBlock)
    TilesKernel(const uint8_t* scales, int64_t ld, int64_t R, int64_t runs, const int64_t* offsets, int64_t L,
                uint8_t* tiles) {
  const RaggedPlace place = FindRaggedBlock(offsets, L, R, blockIdx.y);
  if (place.rows == 0) return;
  const int r = static_cast<int>(threadIdx.x);
  const int64_t c0 = int64_t{blockIdx.x} * 4;
  uint32_t four = 0;
  if (r < place.rows) {
    const uint8_t* row = scales + c0 * ld + place.row0 + r;
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      if (c0 + c < runs) four |= static_cast<uint32_t>(row[c * ld]) << 8 * c;
    }
  }
  uint8_t* tile = tiles + (int64_t{blockIdx.y} * gridDim.x + blockIdx.x) * 512;
  *reinterpret_cast<uint32_t*>(tile + r % 32 * 16 + r / 32 * 4) = four;
}

}  // namespace

cudaError_t MxScalesToTiles(const uint8_t* scales, int64_t ld, int64_t R, int64_t runs, const int64_t* offsets, int64_t L,
                            uint8_t* tiles, cudaStream_t stream) {
  if (R == 0 || runs == 0) return cudaSuccess;
  const dim3 grid(static_cast<unsigned>((runs + 3) / 4), static_cast<unsigned>(RaggedBlocks(R, L)));
  TilesKernel<<<grid, kRaggedBlock, 0, stream>>>(scales, ld, R, runs, offsets, L, tiles);
  return cudaGetLastError();
}

}  // namespace yardmaster
