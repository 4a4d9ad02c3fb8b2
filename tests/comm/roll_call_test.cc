// Who answers a roll call, and with what. Runs with 1, 2 and 4 ranks.
#include "src/comm/roll_call.h"

#include <chrono>
#include <thread>

#include "src/base/clock.h"
#include "tests/catch.h"
#include "tests/comm/mpi_fixture.h"

namespace yardmaster {
namespace {

using testing::World;

void AnswerFor(RollCall& roll_call, double seconds, const std::string& text) {
  for (const double end = NowSeconds() + seconds; NowSeconds() < end;
       std::this_thread::sleep_for(std::chrono::milliseconds(5)))
    roll_call.Answer(text);
}

TEST_CASE("a roll call: who answers is heard, who is silent is not") {
  const std::unique_ptr<RollCall> roll_call = World().MakeRollCall();
  if (!roll_call) YM_SKIP("this MPI library allows one thread only");
  const std::unique_ptr<Agreement> agreement = World().MakeAgreement();
  const int rank = World().rank(), size = World().size(), silent = size - 1;
  CHECK(roll_call->size() == size);
  const auto text = [](int r) { return "rank " + std::to_string(r) + " is here"; };
  agreement->AllGather("");
  if (rank == 0) {
    // From a thread of its own, as the watchdog does it, while this one talks to the others.
    std::vector<std::string> answers;
    std::thread asks([&] { answers = roll_call->Ask(text(0), 1.0); });
    asks.join();
    REQUIRE(answers.size() == static_cast<size_t>(size));
    for (int r = 0; r < size; ++r) {
      INFO("rank " << r);
      CHECK(answers[static_cast<size_t>(r)] == (r == silent && r != 0 ? "" : text(r)));
    }
  } else if (rank != silent) {
    AnswerFor(*roll_call, 1.5, text(rank));
  }
  agreement->AllGather("");
  AnswerFor(*roll_call, 0.2, text(rank));  // the question that the silent one did not hear before
  agreement->AllGather("");

  // All at once, which is what happens when one rank is missing.
  const std::vector<std::string> answers = roll_call->Ask(text(rank), 20.0);
  for (int r = 0; r < size; ++r) CHECK(answers[static_cast<size_t>(r)] == text(r));
  AnswerFor(*roll_call, 0.5, text(rank));  // those who are not done yet
  agreement->AllGather("");
}

}  // namespace
}  // namespace yardmaster
