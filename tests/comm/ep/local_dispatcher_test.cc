#include "src/comm/ep/local_dispatcher.h"

#include "src/base/philox.h"
#include "tests/catch.h"

namespace yardmaster {
namespace {

constexpr int64_t kT = 7, kE = 5, kK = 2, kD = 3, kR = kT * kK;

void FillRandom(const Tensor& x, uint64_t seed) {
  for (int64_t i = 0; i < x.elements(); ++i)
    x.as<double>()[i] = PhiloxNormal(seed, 0, static_cast<uint64_t>(i));
}

double Dot(const Tensor& a, const Tensor& b) {
  double sum = 0;
  for (int64_t i = 0; i < a.elements(); ++i) sum += a.as<double>()[i] * b.as<double>()[i];
  return sum;
}

TEST_CASE("dispatch and combine are each other's adjoint, and rows are expert-major") {
  const auto device = MakeCpuDevice({.threads = 1});
  const Stream stream(device.get());
  Arena saved("saved", device.get()), work("work", device.get());
  saved.Commit(1 << 20);
  work.Commit(1 << 20);
  LocalDispatcher dispatcher(kE, kK);
  CHECK(dispatcher.window_rows(kT) == kR);
  CHECK(dispatcher.local_experts() == kE);

  HostTensor idx(DType::kI32, {kT, kK}), overflow(DType::kI32, {1});
  for (int64_t t = 0; t < kT; ++t) {  // expert 2 is never chosen
    idx.as<int32_t>()[2 * t] = static_cast<int32_t>(t % 2);
    idx.as<int32_t>()[2 * t + 1] = static_cast<int32_t>(3 + t % 3 / 2);
  }
  RoutingHandle handle;
  dispatcher.Plan(stream, idx.view(), overflow.view(), &handle, saved, work);
  CHECK(overflow.as<int32_t>()[0] == 0);
  const int64_t* offsets = handle.offsets.as<int64_t>();
  CHECK(offsets[kE] == kR);
  CHECK(offsets[2] == offsets[3]);

  HostTensor x(DType::kF64, {kT, kD}), w(DType::kF64, {kT, kK}), x_R(DType::kF64, {kR, kD}),
      w_R(DType::kF64, {kR});
  HostTensor y_R(DType::kF64, {kR, kD}), dw_R(DType::kF64, {kR}), y(DType::kF64, {kT, kD}),
      dw(DType::kF64, {kT, kK});
  FillRandom(x.view(), 1);
  FillRandom(w.view(), 2);
  FillRandom(y_R.view(), 3);
  FillRandom(dw_R.view(), 4);
  dispatcher.Dispatch(stream, handle, x.view(), w.view(), x_R.view(), w_R.view(), work);
  for (int64_t e = 0; e < kE; ++e) {
    int64_t last = -1;
    for (int64_t r = offsets[e]; r < offsets[e + 1]; ++r) {
      const int64_t pair = handle.source.as<int64_t>()[r];
      CHECK(idx.as<int32_t>()[pair] == e);
      CHECK(pair / kK > last);  // tokens in ascending order
      last = pair / kK;
      CHECK(x_R.as<double>()[r * kD + 1] == x.as<double>()[last * kD + 1]);
      CHECK(w_R.as<double>()[r] == w.as<double>()[pair]);
    }
  }
  dispatcher.Combine(stream, handle, y_R.view(), {}, {}, y.view(), dw_R.view(), dw.view(), work);
  // <dispatch(x), y_R> = <x, combine(y_R)>, and the same for the weights.
  CHECK(Dot(x_R.view(), y_R.view()) == Approx(Dot(x.view(), y.view())).epsilon(1e-13));
  CHECK(Dot(w_R.view(), dw_R.view()) == Approx(Dot(w.view(), dw.view())).epsilon(1e-13));

  HostTensor sum(DType::kF64, {kT, kD});
  dispatcher.Combine(stream, handle, y_R.view(), x.view(), y.view(), sum.view(), {}, {}, work);
  for (int64_t i = 0; i < kT * kD; ++i) {
    CHECK(sum.as<double>()[i] == Approx(x.as<double>()[i] + 2 * y.as<double>()[i]).margin(1e-14));
  }
}

}  // namespace
}  // namespace yardmaster
