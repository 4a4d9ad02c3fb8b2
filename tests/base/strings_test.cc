#include "src/base/strings.h"

#include "tests/catch.h"

namespace yardmaster {
namespace {

TEST_CASE("strings are joined, split and formatted") {
  CHECK(StrCat("a", 1, 2.5, 'c') == "a12.5c");
  CHECK(StrCat().empty());
  CHECK(StrFormat("%05d|%s", 42, "x") == "00042|x");
  CHECK(StrFormat("%s", std::string(5000, 'y').c_str()).size() == 5000);
  CHECK(StrJoin({"a", "b", "c"}, ", ") == "a, b, c");
  CHECK(StrJoin({}, ", ").empty());
  CHECK(StrSplit("a,,b", ',') == std::vector<std::string>{"a", "", "b"});
  CHECK(StrSplit("", ',') == std::vector<std::string>{""});
}

TEST_CASE("numbers are printed for people") {
  CHECK(HumanBytes(1536) == "1.50 KiB");
  CHECK(HumanBytes(12) == "12 B");
  CHECK(HumanCount(671026419200.0) == "671.03 B");
  CHECK(HumanCount(999) == "999");
  CHECK(HumanSeconds(3725) == "1h02m");
  CHECK(HumanSeconds(59.2) == "59s");
  CHECK(HumanSeconds(-1) == "?");
}

TEST_CASE("the nearest name is found, and none when nothing is near") {
  const std::vector<std::string> names = {"learning_rate", "weight_decay", "steps"};
  CHECK(NearestName("learning_rat", names) == "learning_rate");
  CHECK(NearestName("step", names) == "steps");
  CHECK(NearestName("bananas_and_pears", names).empty());
  CHECK(NearestName("stpes", names) == "steps");  // a swap is one edit
  // Of a short word little may be wrong: two letters of three are another word.
  CHECK(NearestName("foo", {"moe", "run"}).empty());
  CHECK(NearestName("mo", {"moe", "run"}) == "moe");
  CHECK(NearestName("", {"moe"}).empty());
}

}  // namespace
}  // namespace yardmaster
