#include "src/base/agreement.h"

#include <stdexcept>

#include "tests/base/thread_world.h"
#include "tests/catch.h"

namespace yardmaster {
namespace {

TEST_CASE("a process alone agrees with itself") {
  SingleProcess world;
  CHECK(world.rank() == 0);
  CHECK(world.size() == 1);
  CHECK(world.AllGather("x") == std::vector<std::string>{"x"});
  CHECK(world.Broadcast("y") == "y");
  CHECK(world.Gather("z") == std::vector<std::string>{"z"});
}

TEST_CASE("ranks exchange strings by rank") {
  testing::ThreadWorld world(3);
  std::vector<std::vector<std::string>> gathered(3), collected(3);
  std::vector<std::string> sent(3);
  world.Run([&](Agreement& ranks) {
    const size_t r = static_cast<size_t>(ranks.rank());
    for (int i = 0; i < 50; ++i) {
      gathered[r] = ranks.AllGather(std::string(r, 'a'));
      sent[r] = ranks.Broadcast("from " + std::to_string(r));
      collected[r] = ranks.Gather(std::to_string(r * 10));
    }
  });
  for (size_t r = 0; r < 3; ++r) {
    CHECK(gathered[r] == std::vector<std::string>{"", "a", "aa"});
    CHECK(sent[r] == "from 0");
  }
  CHECK(collected[0] == std::vector<std::string>{"0", "10", "20"});
  CHECK(collected[1].empty());
  CHECK(world.stranded() == 0);
}

TEST_CASE("the test world notices ranks that are left waiting") {
  testing::ThreadWorld world(2);
  CHECK_THROWS(world.Run([](Agreement& ranks) {
    if (ranks.rank() == 0) throw std::runtime_error("gone");
    ranks.AllGather("x");
  }));
  CHECK(world.stranded() == 1);
}

}  // namespace
}  // namespace yardmaster
