// The dispatcher over MPI against the plain reference that the one over peer memory is held to as well: plans, windows and
// sums, bit for bit. Runs with 1, 2 and 4 ranks.
#include "tests/comm/ep_reference.h"

#include "src/comm/ep/mpi_dispatcher.h"
#include "src/device/arena.h"
#include "tests/catch.h"
#include "tests/comm/mpi_fixture.h"

namespace yardmaster::testing {
namespace {

std::vector<int64_t> Ints(const Tensor& t, int64_t count) { return {t.as<int64_t>(), t.as<int64_t>() + count}; }

template <class T>
void CheckCase(const EpProblem& p, DispatchMode mode, double factor, MpiCommunicator* comm) {
  const int64_t me = World().rank(), D = p.D, K = p.K, n_T = p.T[me];
  const EpOptions options{p.E, K, World().size(), World().rank(), factor, mode, p.most()};
  const std::vector<EpExpectedPlan> plans = ExpectPlans(p, options);
  const EpExpectedPlan& plan = plans[me];
  std::vector<std::vector<T>> x, w, y_R, dw_R;
  for (int64_t s = 0; s < p.n; ++s) {
    const auto stream = static_cast<uint64_t>(10 * s);
    x.push_back(EpValues<T>(stream, p.T[s] * D));
    w.push_back(EpValues<T>(stream + 1, p.T[s] * K));
    y_R.push_back(EpValues<T>(stream + 2, options.window_rows(p.T[s]) * D));
    dw_R.push_back(EpValues<T>(stream + 3, options.window_rows(p.T[s])));
  }
  std::vector<T> residual = EpValues<T>(static_cast<uint64_t>(10 * me + 4), n_T * D),
                 addend = EpValues<T>(static_cast<uint64_t>(10 * me + 5), n_T * D);
  MpiDispatcher dispatcher(options, comm);
  Arena saved("saved", &CpuStream().device()), work("work", &CpuStream().device());
  saved.Commit(1 << 20);
  work.Commit(1 << 20);
  std::vector<int32_t> idx = p.IdxOf(me), overflow = {0};
  RoutingHandle h;
  dispatcher.Plan(CpuStream(), TensorOf(idx, {n_T, K}), TensorOf(overflow), &h, saved, work);
  CHECK(Ints(h.offsets, p.L() + 1) == plan.offsets);
  CHECK(Ints(h.counts, p.n * (p.E + 2)) == plan.counts);
  CHECK(Ints(h.begins, p.n * p.E) == plan.begins);
  CHECK(h.needed.as<int64_t>()[0] == plan.needed);
  CHECK((overflow[0] == 1) == plan.overflow);
  CHECK(Ints(h.send_offsets, static_cast<int64_t>(plan.send_offsets.size())) == plan.send_offsets);
  CHECK(Ints(h.send_slot, static_cast<int64_t>(plan.send_slot.size())) == plan.send_slot);
  if (!options.expanded()) {
    CHECK(Ints(h.recv_offsets, p.n + 1) == plan.recv_offsets);
    CHECK(Ints(h.recv_slot, static_cast<int64_t>(plan.recv_slot.size())) == plan.recv_slot);
  }
  const int64_t R = options.window_rows(n_T);
  std::vector<T> x_R(static_cast<size_t>(R * D)), w_R(static_cast<size_t>(R)), want_x, want_w;
  dispatcher.Dispatch(CpuStream(), h, TensorOf(x[me], {n_T, D}), TensorOf(w[me], {n_T, K}), TensorOf(x_R, {R, D}),
                      TensorOf(w_R), work);
  ExpectWindow(p, plans, me, x, w, &want_x, &want_w);
  CHECK(SameBits(x_R.data(), want_x.data(), static_cast<int64_t>(want_x.size())));
  CHECK(SameBits(w_R.data(), want_w.data(), static_cast<int64_t>(want_w.size())));
  std::vector<T> y(static_cast<size_t>(n_T * D)), dw(static_cast<size_t>(n_T * K)), want_y, want_dw;
  dispatcher.Combine(CpuStream(), h, TensorOf(y_R[me], {R, D}), TensorOf(residual, {n_T, D}), TensorOf(addend, {n_T, D}),
                     TensorOf(y, {n_T, D}), TensorOf(dw_R[me]), TensorOf(dw, {n_T, K}), work);
  ExpectCombine(p, options, plans, me, y_R, dw_R, residual, addend, &want_y, &want_dw);
  CHECK(SameBits(y.data(), want_y.data(), n_T * D));
  CHECK(SameBits(dw.data(), want_dw.data(), n_T * K));
}

TEST_CASE("dispatch over MPI gives what the plain reference says") {
  const auto comm = World().WorldGroup();
  const int64_t n = World().size();
  uint64_t seed = 1;
  for (EpRouting routing : kEpRoutings) {
    for (DispatchMode mode : {DispatchMode::kExpanded, DispatchMode::kDeduplicated}) {
      for (double factor : {-1.0, 1.1, 0.4}) {
        INFO("routing " << static_cast<int>(routing) << ", mode " << static_cast<int>(mode) << ", factor " << factor);
        CheckCase<float>(MakeEpProblem(n, routing, 12, 3, 5, {13}, ++seed), mode, factor, comm.get());
        CheckCase<double>(MakeEpProblem(n, routing, 8, 4, 3, {7, 0, 11, 2}, ++seed, 0.2), mode, factor, comm.get());
      }
    }
  }
}

}  // namespace
}  // namespace yardmaster::testing
