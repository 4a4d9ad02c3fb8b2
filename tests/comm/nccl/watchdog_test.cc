// What the watchdog says of the answers to a roll call.
#include "src/comm/nccl/watchdog.h"

#include "tests/catch.h"

namespace yardmaster {
namespace {

TEST_CASE("who is missing") {
  const std::string here = RollCallAnswer(41, "#41 all-reduce of dp, 8 bytes: on the GPU");
  CHECK(WhoIsMissing({here, here, "", here}, 41) == "rank 2 did not answer");
  CHECK(WhoIsMissing({here, RollCallAnswer(40, "#40 dispatch of ep: finished"), here}, 41) ==
        "rank 1 (last: #40 dispatch of ep: finished) did not arrive");
  CHECK(WhoIsMissing({here, "", RollCallAnswer(3, "#3 x: finished")}, 41) ==
        "rank 1 did not answer; rank 2 (last: #3 x: finished) did not arrive");
  CHECK(WhoIsMissing({here, here}, 41) == "all ranks have begun it; a GPU or a connection does not go on");
  CHECK(WhoIsMissing(std::vector<std::string>(20), 1).find("and 12 others did not answer") !=
        std::string::npos);
}

}  // namespace
}  // namespace yardmaster
