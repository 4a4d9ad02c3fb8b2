#include "src/ops/cuda/blas_lt.h"

#include <algorithm>
#include <vector>

#include "src/base/strings.h"

namespace yardmaster::cuda {
namespace {

#define YM_BLAS_CHECK(op, call) Check((call), (op), #call)

cudaDataType_t CudaType(DType t) {
  switch (t) {
    case DType::kBF16:
      return CUDA_R_16BF;
    case DType::kF32:
      return CUDA_R_32F;
    case DType::kF64:
      return CUDA_R_64F;
    default:
      break;
  }
  YM_CHECK(false, "no GEMM on ", DTypeName(t));
  return CUDA_R_32F;
}

// The largest power of two up to 256 that divides the address of every row of every matrix of the batch.
// cuBLASLt asks for the matrices alone, and then offers kernels that load with TMA, whose strides are
// multiples of 16 bytes, for odd rows.
int AlignmentOf(const void* pointer, int64_t ld, int64_t stride, DType type) {
  const auto bits =
      reinterpret_cast<uintptr_t>(pointer) | static_cast<uintptr_t>((ld | stride) * DTypeBytes(type)) | 256u;
  return static_cast<int>(bits & (~bits + 1));
}

template <class T, cublasStatus_t (*kDestroy)(T)>
struct Owned {
  T value = nullptr;
  Owned() = default;
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  ~Owned() {
    if (value != nullptr) static_cast<void>(kDestroy(value));
  }
};
using OwnedLayout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using OwnedMatmul = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using OwnedPreference = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

}  // namespace

// cuBLASLt is column-major: a row-major D = op(A) op(B) is the column-major D^T = op(B)^T op(A)^T over the
// same memory, so B goes first, and an operand that is transposed for us is transposed for it. The layouts
// below have its names.
struct BlasLt::Plan {
  OwnedMatmul matmul;
  OwnedLayout first, second, c, d;
  std::vector<cublasLtMatmulHeuristicResult_t> candidates;  // the first that runs is kept
  bool proven = false;
  std::string shape;

  const cublasLtMatmulHeuristicResult_t& choice() const { return candidates.front(); }
  std::string Description() const {
    const auto config = [&](cublasLtMatmulAlgoConfigAttributes_t name) {
      int32_t value = -1;
      size_t written = 0;
      static_cast<void>(
          cublasLtMatmulAlgoConfigGetAttribute(&choice().algo, name, &value, sizeof value, &written));
      return written == 2 ? value & 0xFFFF : value;
    };
    return StrCat(shape, ": algorithm ", config(CUBLASLT_ALGO_CONFIG_ID), " tile ",
                  config(CUBLASLT_ALGO_CONFIG_TILE_ID), " stages ", config(CUBLASLT_ALGO_CONFIG_STAGES_ID),
                  " split-k ", config(CUBLASLT_ALGO_CONFIG_SPLITK_NUM), " workspace ",
                  choice().workspaceSize);
  }
};

BlasLt::BlasLt(CudaDevice& device) : device_(device) {
  YM_BLAS_CHECK("start of cuBLASLt", cublasLtCreate(&handle_));
}

BlasLt::~BlasLt() {
  plans_.clear();
  static_cast<void>(cublasLtDestroy(handle_));
}

void BlasLt::Check(cublasStatus_t status, const char* op, const char* call) const {
  if (status != CUBLAS_STATUS_SUCCESS) device_.Fail(cublasLtGetStatusString(status), op, call);
}

BlasLt::Plan& BlasLt::PlanFor(const Key& key, const char* op) {
  std::unique_ptr<Plan>& slot = plans_[key];
  if (slot != nullptr) return *slot;
  const MatmulShape& s = key.shape;
  auto plan = std::make_unique<Plan>();
  const bool f64 = s.type == DType::kF64;
  YM_BLAS_CHECK(op,
                cublasLtMatmulDescCreate(&plan->matmul.value, f64 ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                                         f64 ? CUDA_R_64F : CUDA_R_32F));
  const cublasOperation_t first_op = s.trans_b ? CUBLAS_OP_T : CUBLAS_OP_N,
                          second_op = s.trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
  YM_BLAS_CHECK(op, cublasLtMatmulDescSetAttribute(plan->matmul.value, CUBLASLT_MATMUL_DESC_TRANSA, &first_op,
                                                   sizeof first_op));
  YM_BLAS_CHECK(op, cublasLtMatmulDescSetAttribute(plan->matmul.value, CUBLASLT_MATMUL_DESC_TRANSB,
                                                   &second_op, sizeof second_op));
  const auto layout = [&](OwnedLayout& l, DType type, int64_t rows, int64_t cols, int64_t ld,
                          int64_t stride) {
    YM_BLAS_CHECK(op, cublasLtMatrixLayoutCreate(&l.value, CudaType(type), static_cast<uint64_t>(cols),
                                                 static_cast<uint64_t>(rows), ld));
    if (s.batch == 1) return;
    const int32_t count = static_cast<int32_t>(s.batch);
    YM_BLAS_CHECK(op, cublasLtMatrixLayoutSetAttribute(l.value, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                                       sizeof count));
    YM_BLAS_CHECK(op, cublasLtMatrixLayoutSetAttribute(l.value, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                                       &stride, sizeof stride));
  };
  layout(plan->first, s.type, s.trans_b ? s.n : s.k, s.trans_b ? s.k : s.n, s.ldb, s.stride_b);
  layout(plan->second, s.type, s.trans_a ? s.k : s.m, s.trans_a ? s.m : s.k, s.lda, s.stride_a);
  layout(plan->c, s.out, s.m, s.n, s.ldc, s.stride_c);
  layout(plan->d, s.out, s.m, s.n, s.ldd, s.stride_d);

  OwnedPreference preference;
  YM_BLAS_CHECK(op, cublasLtMatmulPreferenceCreate(&preference.value));
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t name, const auto& value) {
    YM_BLAS_CHECK(op, cublasLtMatmulPreferenceSetAttribute(preference.value, name, &value, sizeof value));
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{CudaDevice::kLibraryWorkspace});
  // Partial sums of split-K stay in the compute type.
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<uint32_t>(key.align_b));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<uint32_t>(key.align_a));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, static_cast<uint32_t>(key.align_c));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<uint32_t>(key.align_d));
  plan->candidates.resize(8);
  int found = 0;
  YM_BLAS_CHECK(op, cublasLtMatmulAlgoGetHeuristic(
                        handle_, plan->matmul.value, plan->first.value, plan->second.value, plan->c.value,
                        plan->d.value, preference.value, static_cast<int>(plan->candidates.size()),
                        plan->candidates.data(), &found));
  plan->candidates.resize(static_cast<size_t>(found));
  plan->shape = StrCat(DTypeName(s.type), " -> ", DTypeName(s.out), " ", s.trans_a ? "T" : "N",
                       s.trans_b ? "T" : "N", " m ", s.m, " n ", s.n, " k ", s.k, " ld ", s.lda, " ", s.ldb,
                       " ", s.ldd, s.batch > 1 ? StrCat(" batch ", s.batch) : "");
  if (found == 0)
    device_.Fail(StrCat("cuBLASLt has no algorithm for ", plan->shape), op, "cublasLtMatmulAlgoGetHeuristic");
  slot = std::move(plan);
  return *slot;
}

void BlasLt::Run(cudaStream_t stream, const char* op, const MatmulShape& s, const void* a, const void* b,
                 const void* c, void* d, double alpha, double beta) {
  const Key key{s, AlignmentOf(a, s.lda, s.stride_a, s.type), AlignmentOf(b, s.ldb, s.stride_b, s.type),
                AlignmentOf(c, s.ldc, s.stride_c, s.out), AlignmentOf(d, s.ldd, s.stride_d, s.out)};
  Plan& plan = PlanFor(key, op);
  const float alpha32 = static_cast<float>(alpha), beta32 = static_cast<float>(beta);
  const bool f64 = s.type == DType::kF64;
  const void* alpha_of_type = f64 ? static_cast<const void*>(&alpha) : &alpha32;
  const void* beta_of_type = f64 ? static_cast<const void*>(&beta) : &beta32;
  for (;;) {
    const cublasStatus_t status =
        cublasLtMatmul(handle_, plan.matmul.value, alpha_of_type, b, plan.first.value, a, plan.second.value,
                       beta_of_type, c, plan.c.value, d, plan.d.value, &plan.choice().algo,
                       device_.LibraryWorkspace(stream), plan.choice().workspaceSize, stream);
    // What the heuristic offers may still be refused when it is first run; the same offer is refused in every
    // run.
    if (status != CUBLAS_STATUS_SUCCESS && !plan.proven && plan.candidates.size() > 1) {
      static_cast<void>(cudaGetLastError());
      plan.candidates.erase(plan.candidates.begin());
      continue;
    }
    if (status != CUBLAS_STATUS_SUCCESS)
      device_.Fail(cublasLtGetStatusString(status), op, StrCat("cublasLtMatmul of ", plan.shape).c_str());
    plan.proven = true;
    return;
  }
}

std::string BlasLt::Table() const {
  std::string out;
  for (const auto& [key, plan] : plans_) {
    if (plan != nullptr) out += plan->Description() + "\n";
  }
  return out;
}

}  // namespace yardmaster::cuda
