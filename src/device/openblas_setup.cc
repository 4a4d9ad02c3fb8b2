#include "src/device/openblas_setup.h"

#include <cblas.h>

#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "src/base/error.h"
#include "src/base/philox.h"
#include "src/base/strings.h"

// Present in builds for many processors (DYNAMIC_ARCH), which distributions ship; absent in others.
extern "C" {
[[gnu::weak]] void gotoblas_dynamic_init(void);
[[gnu::weak]] void gotoblas_dynamic_quit(void);
}

namespace yardmaster {
namespace {

void CallGemm(CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, int m, int n, int k, const float* a, int lda,
              const float* b, int ldb, float* c) {
  cblas_sgemm(CblasRowMajor, ta, tb, m, n, k, 1, a, lda, b, ldb, 0, c, n);
}
void CallGemm(CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, int m, int n, int k, const double* a, int lda,
              const double* b, int ldb, double* c) {
  cblas_dgemm(CblasRowMajor, ta, tb, m, n, k, 1, a, lda, b, ldb, 0, c, n);
}

// The contents differ by shape and type; the results are compared in double.
template <class T>
bool GemmIsRight(bool trans_a, bool trans_b, int m, int n, int k) {
  std::vector<T> a(static_cast<size_t>(m) * k), b(static_cast<size_t>(k) * n),
      c(static_cast<size_t>(m) * n, T{NAN});
  for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<T>(PhiloxUniform(k, 1, i) - 0.5);
  for (size_t i = 0; i < b.size(); ++i) b[i] = static_cast<T>(PhiloxUniform(k, 2, i) - 0.5);
  CallGemm(trans_a ? CblasTrans : CblasNoTrans, trans_b ? CblasTrans : CblasNoTrans, m, n, k,
           a.data(), trans_a ? m : k, b.data(), trans_b ? k : n, c.data());
  const double tolerance = (sizeof(T) == 4 ? 1e-6 : 1e-14) * std::sqrt(k) * 4;
  for (int i = 0; i < m; ++i) {
    for (int j = 0; j < n; ++j) {
      double sum = 0;
      for (int p = 0; p < k; ++p) {
        sum += static_cast<double>(trans_a ? a[p * m + i] : a[i * k + p]) *
               (trans_b ? b[j * k + p] : b[p * n + j]);
      }
      if (!(std::fabs(sum - c[static_cast<size_t>(i) * n + j]) <= tolerance)) return false;
    }
  }
  return true;
}

bool OpenBlasIsRight() {
  for (int trans = 0; trans < 4; ++trans) {
    const bool ta = trans & 1, tb = trans & 2;
    if (!GemmIsRight<float>(ta, tb, 67, 35, 129) || !GemmIsRight<double>(ta, tb, 67, 35, 129))
      return false;
    if (!GemmIsRight<float>(ta, tb, 130, 65, 257) || !GemmIsRight<double>(ta, tb, 130, 65, 257))
      return false;
  }
  return true;
}

// True if the kernels in use need no more than this build itself does and are not those of an older
// processor.
bool KernelsFitProcessor() {
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return true;
  const std::string name = openblas_get_corename();
  for (const char* modern :
       {"Haswell", "Zen", "Excavator", "SkylakeX", "Cooperlake", "SapphireRapids"}) {
    if (name == modern) return true;
  }
  return false;
#else
  return true;
#endif
}

bool ChooseKernels(const char* core) {
  if (gotoblas_dynamic_init == nullptr || gotoblas_dynamic_quit == nullptr) return false;
  setenv("OPENBLAS_CORETYPE", core, 1);
  gotoblas_dynamic_quit();
  gotoblas_dynamic_init();
  unsetenv("OPENBLAS_CORETYPE");
  return openblas_get_corename() == std::string(core);
}

std::string Prepare() {
  openblas_set_num_threads(1);
  const char* from_user = std::getenv("OPENBLAS_CORETYPE");
  const bool free_choice = from_user == nullptr || *from_user == '\0';
  const std::string first = openblas_get_corename();
  bool right = KernelsFitProcessor() && OpenBlasIsRight();
  if (!free_choice) right = OpenBlasIsRight();
#if defined(__x86_64__)
  if (!right && free_choice) {
    const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    if (avx512) right = ChooseKernels("SkylakeX") && OpenBlasIsRight();
    if (!right && __builtin_cpu_supports("avx2"))
      right = ChooseKernels("Haswell") && OpenBlasIsRight();
  }
#endif
  if (!right && free_choice) right = OpenBlasIsRight();  // slow kernels, but no others to be had
  std::string config = openblas_get_config();  // "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH ..."
  const std::vector<std::string> words = StrSplit(config, ' ');
  const std::string version = words.size() > 1 ? words[0] + " " + words[1] : config;
  if (!right) {
    throw Error(ExitCode::kConfig,
                StrCat(version, " multiplies matrices wrongly on this processor with its ",
                       openblas_get_corename(), " kernels",
                       free_choice && first != openblas_get_corename() ? " and with " + first : ""),
                "cpu device",
                "set the environment variable OPENBLAS_CORETYPE=Haswell (or Sandybridge) before "
                "the program starts, "
                "or install a newer OpenBLAS");
  }
  return StrCat(version, ", ", openblas_get_corename(), " kernels");
}

}  // namespace

std::string PrepareOpenBlas() {
  static const std::string prepared = Prepare();  // OpenBLAS's choice of kernels is one per process
  return prepared;
}

}  // namespace yardmaster
