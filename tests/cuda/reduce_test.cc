// The additions of a reduction between ranks, and the squares that come out of them, against plain loops.
// `reduce_gpu_test "[probe]"` prints what squares cost beside a pass of their own.
#include "tests/cuda/gpu.h"

#if YM_HAVE_CUDA
#include <cmath>
#include <cstring>
#include <iomanip>
#include <iostream>
#include <limits>

#include "kernels/reduce/ordered_reduce.h"
#include "src/base/strings.h"
#include "src/ops/cuda/cuda_stream.h"
#include "src/ops/step_control.h"
#include "tests/cuda/median_ms.h"

namespace yardmaster::testing {
namespace {

constexpr int64_t kRun = kOrderedReduceRun;

template <class T>
constexpr ReduceType kReduceType = std::is_same_v<T, float> ? ReduceType::kF32 : ReduceType::kF64;

int64_t Runs(int64_t n) { return (n + kRun - 1) / kRun; }

// Values of all ranks in a GPU's memory, `skew` elements behind an aligned address: of these ranks `own` has
// its in a place of its own, which is the result's too where in_place.
template <class T>
class Reduction {
 public:
  struct Layout {
    int own = 0;
    int64_t skew = 0;
    bool in_place = false;
  };
  struct Result {
    std::string sums, squares;  // bytes
  };

  Reduction(Gpu& gpu, int ranks, int64_t n)
      : gpu_(gpu),
        ranks_(ranks),
        n_(n),
        stride_((n + 3) / 4 * 4),
        parts_(Room((ranks - 1) * stride_)),
        own_(Room(n)),
        out_(Room(n)),
        squares_(gpu.Make(DType::kF64, {Runs(n) + 1})) {
    for (int r = 0; r < ranks; ++r) {
      const std::vector<double> v =
          RandomValues(StrCat("rank ", r), std::min(n, kValues), -std::exp2(r % 5), std::exp2(r % 3));
      std::vector<T> all(static_cast<size_t>(n));
      for (int64_t i = 0; i < n; ++i) all[i] = static_cast<T>(v[i % kValues]);
      values_.push_back(std::move(all));
    }
  }

  // What a loop gives.
  std::vector<T> Sums() const {
    std::vector<T> sums = values_[0];
    for (int r = 1; r < ranks_; ++r) {
      for (int64_t i = 0; i < n_; ++i) sums[i] += values_[r][i];
    }
    return sums;
  }
  void Set(int rank, int64_t i, T value) { values_[rank][i] = value; }

  Result Run(const Layout& layout, bool squares = true) {
    for (const Tensor& t : {parts_, own_, out_, squares_}) gpu_.Poison(t);
    const auto at = [&](const Tensor& t) { return t.as<T>() + layout.skew; };
    const auto put = [&](T* to, int r) {
      gpu_.device().CopyFromHost(to, values_[r].data(), static_cast<size_t>(n_) * sizeof(T));
    };
    for (int r = 0; r < ranks_; ++r)
      put(r == layout.own ? at(own_) : at(parts_) + (r - (r > layout.own)) * stride_, r);
    const Tensor& result = layout.in_place ? own_ : out_;
    YM_CUDA_CHECK(gpu_.stream(), "test",
                  OrderedReduce({.type = kReduceType<T>,
                                 .parts = at(parts_),
                                 .stride = stride_,
                                 .ranks = ranks_,
                                 .own = layout.own,
                                 .own_values = at(own_),
                                 .out = at(result),
                                 .n = n_,
                                 .squares = squares ? squares_.as<double>() : nullptr},
                                CudaStream(gpu_.stream())));
    gpu_.stream().Synchronize();
    const std::string room = gpu_.Bytes(result), all = gpu_.Bytes(squares_);
    const size_t before = static_cast<size_t>(layout.skew) * sizeof(T),
                 bytes = static_cast<size_t>(n_) * sizeof(T);
    const size_t of_squares = squares ? static_cast<size_t>(Runs(n_)) * sizeof(double) : 0;
    const auto untouched = [](const std::string& s) { return s == std::string(s.size(), '\xff'); };
    CHECK(untouched(room.substr(0, before)));
    CHECK(untouched(room.substr(before + bytes)));
    CHECK(untouched(all.substr(of_squares)));
    return {room.substr(before, bytes), all.substr(0, of_squares)};
  }

 private:
  static constexpr int64_t kValues = 65521;  // they come again and again, at other places of a run
  Tensor Room(int64_t n) { return gpu_.Make(DTypeOf<T>::value, {n + 8}); }
  Gpu& gpu_;
  int ranks_;
  int64_t n_, stride_;
  Tensor parts_, own_, out_, squares_;
  std::vector<std::vector<T>> values_;
};

template <class V>
std::vector<V> From(const std::string& bytes) {
  std::vector<V> out(bytes.size() / sizeof(V));
  std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

// The largest relative difference from squares that are added with 64 bits.
template <class T>
double SquaresApart(const std::vector<T>& sums, const std::string& squares) {
  const std::vector<double> got = From<double>(squares);
  const auto n = static_cast<int64_t>(sums.size());
  REQUIRE(static_cast<int64_t>(got.size()) == Runs(n));
  double most = 0;
  for (int64_t run = 0; run < Runs(n); ++run) {
    long double exact = 0;
    for (int64_t i = run * kRun; i < std::min(n, (run + 1) * kRun); ++i)
      exact += static_cast<long double>(sums[i]) * static_cast<long double>(sums[i]);
    const auto apart = static_cast<double>(std::abs(got[run] - exact) / exact);
    most = std::max(most, std::isnan(apart) ? std::numeric_limits<double>::infinity() : apart);
  }
  return most;
}

template <class T>
void CheckReductions() {
  for (const int ranks : {2, 3, 8}) {
    Gpu gpu(size_t{512} << 20, size_t{1} << 20);
    for (const int64_t n : {int64_t{1}, int64_t{3}, int64_t{127}, kRun - 1, kRun, kRun + 1, kRun + 4,
                            3 * kRun + 130, int64_t{7001}, 37 * kRun, 150 * kRun + 2}) {
      INFO(DTypeName(DTypeOf<T>::value) << ", " << ranks << " ranks, n = " << n);
      Reduction<T> reduction(gpu, ranks, n);
      const std::vector<T> sums = reduction.Sums();
      const std::string bits(reinterpret_cast<const char*>(sums.data()), sums.size() * sizeof(T));
      std::string squares;
      for (int own = 0; own < ranks; ++own) {
        for (const int64_t skew : {0, 1}) {
          for (const bool in_place : {false, true}) {
            const auto got = reduction.Run({own, skew, in_place});
            CHECK(got.sums == bits);
            if (squares.empty()) squares = got.squares;
            CHECK(got.squares == squares);  // bits, whatever the width of the loads
          }
          CHECK(reduction.Run({own, skew, true}, /*squares=*/false).sums == bits);
        }
      }
      CHECK(SquaresApart(sums, squares) < 1e-15);
    }
  }
}

TEST_CASE("gpu reduce: sums and their squares, of every width, rank and length") {
  YM_NEEDS_GPU();
  CheckReductions<float>();
  CheckReductions<double>();
}

TEST_CASE("gpu reduce: a run has its squares' bits wherever it lies") {
  YM_NEEDS_GPU();
  Gpu gpu(size_t{512} << 20, size_t{1} << 20);
  const int64_t n = 9000 * kRun + 77;  // more runs than warps
  Reduction<float> all(gpu, 2, n);
  const std::vector<float> sums = all.Sums();
  const std::vector<double> squares = From<double>(all.Run({.own = 1}).squares);
  for (const int64_t run : {int64_t{0}, int64_t{1}, int64_t{8500}, Runs(n) - 1}) {
    const int64_t length = std::min(kRun, n - run * kRun);
    Reduction<float> alone(gpu, 2, length);
    for (int64_t i = 0; i < length; ++i) {
      alone.Set(0, i, sums[run * kRun + i]);
      alone.Set(1, i, 0.0f);
    }
    CHECK(From<double>(alone.Run({.own = 0}).squares) == std::vector<double>{squares[run]});
  }
}

TEST_CASE("gpu reduce: what is not finite shows in the squares of its own run") {
  YM_NEEDS_GPU();
  Gpu gpu(size_t{64} << 20, size_t{1} << 20);
  Reduction<float> reduction(gpu, 3, 4 * kRun + 5);
  reduction.Set(1, kRun + 17, std::numeric_limits<float>::quiet_NaN());
  reduction.Set(2, 4 * kRun + 4, std::numeric_limits<float>::infinity());
  reduction.Set(0, 3 * kRun, 3e38f);  // its square fits into a double
  const std::vector<double> squares = From<double>(reduction.Run({.own = 2}).squares);
  CHECK(std::isfinite(squares[0]));
  CHECK(std::isnan(squares[1]));
  CHECK(std::isfinite(squares[2]));
  CHECK((squares[3] > 8.9e76 && squares[3] < 9.1e76));
  CHECK(squares[4] == std::numeric_limits<double>::infinity());
}

TEST_CASE("gpu reduce: no squares of a maximum or of integers") {
  YM_NEEDS_GPU();
  Gpu gpu(size_t{1} << 20, size_t{1} << 20);
  const Tensor x = gpu.Make(DType::kF64, {64}), squares = gpu.Make(DType::kF64, {1});
  OrderedReduceArgs g{.type = ReduceType::kF64,
                      .maximum = true,
                      .parts = x.data(),
                      .stride = 32,
                      .ranks = 2,
                      .own = 0,
                      .own_values = x.as<double>() + 32,
                      .out = x.as<double>() + 32,
                      .n = 32,
                      .squares = squares.as<double>()};
  CHECK(OrderedReduce(g, CudaStream(gpu.stream())) == cudaErrorInvalidValue);
  g.maximum = false;
  g.type = ReduceType::kI64;
  CHECK(OrderedReduce(g, CudaStream(gpu.stream())) == cudaErrorInvalidValue);
}

TEST_CASE("probe: squares on the way of a reduction beside a pass of their own", "[.][probe]") {
  YM_NEEDS_GPU();
  Gpu gpu(size_t{3} << 30, size_t{1} << 20);
  const int64_t rows = 4096, columns = 7168,
                n = rows * columns;  // a segment of copies between two ranks, nearly
  const Tensor x = gpu.Make(DType::kF32, {rows, columns}, {0}),
               y = gpu.Make(DType::kF32, {rows, columns}, {0});
  const Tensor parts = gpu.Make(DType::kF32, {7, n}, {0});
  const Tensor narrow = x.Reshape({rows * 16, columns / 16});  // chunks for all multiprocessors, as in a step
  const Tensor squares = gpu.Make(DType::kF64, {Runs(n)}),
               partials = gpu.Make(DType::kF64, {NumNormChunks(narrow.shape())});
  const cudaStream_t s = CudaStream(gpu.stream());
  const double copy_ms = MedianMs(gpu, 31, [&] {
    YM_CUDA_CHECK(
        gpu.stream(), "probe",
        cudaMemcpyAsync(y.data(), x.data(), static_cast<size_t>(x.bytes()), cudaMemcpyDeviceToDevice, s));
  });
  const double copy = 2e-9 * static_cast<double>(x.bytes()) / copy_ms;
  std::cout << std::fixed << std::setprecision(4) << "copy of " << rows << " x " << columns
            << " F32: " << copy_ms << " ms, " << copy << " TB/s\n";
  const auto report = [&](const std::string& what, double passes, const std::function<void()>& f) {
    const double ms = MedianMs(gpu, 31, f), rate = 1e-9 * passes * static_cast<double>(x.bytes()) / ms;
    std::cout << std::setw(34) << what << ": " << ms << " ms  " << rate << " TB/s  " << 100 * rate / copy
              << " % of copy\n";
  };
  for (const int ranks : {2, 4, 8}) {
    for (const bool with : {false, true}) {
      report(StrCat(ranks, " ranks", with ? " and squares" : ""), ranks + 1, [&] {
        YM_CUDA_CHECK(gpu.stream(), "probe",
                      OrderedReduce({.type = ReduceType::kF32,
                                     .parts = parts.data(),
                                     .stride = n,
                                     .ranks = ranks,
                                     .own = ranks / 2,
                                     .own_values = x.data(),
                                     .out = x.data(),
                                     .n = n,
                                     .squares = with ? squares.as<double>() : nullptr},
                                    s));
      });
    }
  }
  report("squares alone", 1, [&] { SumSquares(gpu.stream(), narrow, partials); });
}

}  // namespace
}  // namespace yardmaster::testing

#endif  // YM_HAVE_CUDA
