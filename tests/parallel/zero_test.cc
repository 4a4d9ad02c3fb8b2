#include "src/parallel/zero.h"

#include <algorithm>
#include <numeric>

#include "tests/catch.h"

namespace yardmaster {
namespace {

// Shapes of a pipeline stage of DeepSeek-V3 with `layers` MoE layers, and the embedding.
std::vector<ZeroParameter> DeepSeekV3Stage(int layers) {
  std::vector<ZeroParameter> p = {ZeroParameter::Of({129280, 7168})};
  for (int i = 0; i < layers; ++i) {
    for (const Shape& shape :
         {Shape{7168}, Shape{1536, 7168}, Shape{1536}, Shape{24576, 1536}, Shape{576, 7168},
          Shape{512}, Shape{32768, 512}, Shape{7168, 16384}, Shape{7168}, Shape{256, 7168},
          Shape{4096, 7168}, Shape{7168, 2048}}) {
      p.push_back(ZeroParameter::Of(shape));
    }
  }
  return p;
}

// Ascending, from 0 to the end, whole rows, cut at multiples of 128 rows of a matrix.
void CheckCuts(const std::vector<ZeroParameter>& parameters,
               const std::vector<std::vector<int64_t>>& bounds, int ranks) {
  REQUIRE(bounds.size() == parameters.size());
  int64_t wrong = 0;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const ZeroParameter& p = parameters[i];
    REQUIRE(bounds[i].size() == static_cast<size_t>(ranks) + 1);
    wrong += bounds[i].front() != 0 || bounds[i].back() != p.elements() ||
             !std::is_sorted(bounds[i].begin(), bounds[i].end());
    for (int64_t b : bounds[i]) {
      wrong += p.elements() > 0 && (b % p.cols != 0 || (b / p.cols % p.rows % 128 != 0));
    }
    if (p.elements() < 64 * 1024) {
      int owners = 0;
      for (int r = 0; r < ranks; ++r) owners += bounds[i][r + 1] > bounds[i][r];
      wrong += owners != (p.elements() > 0 ? 1 : 0);
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("every row has one owner, for up to 4096 ranks") {
  std::vector<ZeroParameter> parameters = DeepSeekV3Stage(4);
  parameters.push_back({64, 384, 96});   // experts
  parameters.push_back({5, 200, 1000});  // rows that are no multiple of 128
  parameters.push_back({1, 70001, 3});
  parameters.push_back({1, 0, 8});
  for (int ranks : {1, 2, 3, 4, 7, 16, 128, 1000, 4096}) {
    INFO(ranks << " ranks");
    const auto bounds = ZeroBounds(parameters, ranks);
    CheckCuts(parameters, bounds, ranks);
    const std::vector<int64_t> loads = ZeroLoads(bounds);
    int64_t total = 0;
    for (const ZeroParameter& p : parameters) total += p.elements();
    CHECK(std::accumulate(loads.begin(), loads.end(), int64_t{0}) == total);
  }
}

TEST_CASE("the load is balanced to one piece") {
  std::vector<ZeroParameter> parameters = DeepSeekV3Stage(4);
  for (ZeroParameter& p : parameters) {
    if (p.rows > 1) p.rows = (p.rows + 127) / 128 * 128;
  }
  const int64_t piece = 128 * 16384;
  for (int ranks : {1, 2, 8, 96, 128, 1024, 4096}) {
    const std::vector<int64_t> loads = ZeroLoads(ZeroBounds(parameters, ranks));
    INFO(ranks << " ranks");
    CHECK(*std::max_element(loads.begin(), loads.end()) -
              *std::min_element(loads.begin(), loads.end()) <=
          piece);
  }
  // As it is, with rows that are no multiples of 128: at 128 ranks within 2% of the mean.
  const std::vector<int64_t> loads = ZeroLoads(ZeroBounds(DeepSeekV3Stage(4), 128));
  const double mean =
      static_cast<double>(std::accumulate(loads.begin(), loads.end(), int64_t{0})) / 128;
  CHECK(static_cast<double>(*std::max_element(loads.begin(), loads.end())) < 1.02 * mean);
}

TEST_CASE("small tensors go round, in registry order") {
  const std::vector<ZeroParameter> norms(5, ZeroParameter::Of({64}));
  const auto bounds = ZeroBounds(norms, 2);
  for (size_t i = 0; i < norms.size(); ++i) {
    CHECK(bounds[i] ==
          (i % 2 == 0 ? std::vector<int64_t>{0, 64, 64} : std::vector<int64_t>{0, 0, 64}));
  }
  CHECK(ZeroBounds(norms, 2) == bounds);
  CHECK(ZeroBounds({}, 3).empty());
}

TEST_CASE("shapes as stacks of matrices") {
  CHECK(ZeroParameter::Of({7}).rows == 1);
  CHECK(ZeroParameter::Of({7}).cols == 7);
  const ZeroParameter experts = ZeroParameter::Of({4, 6, 5});
  CHECK(experts.matrices == 4);
  CHECK(experts.rows == 6);
  CHECK(experts.elements() == 120);
}

// Paints what the pieces cover.
void CheckPieces(const Shape& shape, int64_t begin, int64_t end, size_t most) {
  INFO(shape << " " << begin << ".." << end);
  const std::vector<ZeroPiece> pieces = ZeroPieces(shape, begin, end);
  CHECK(pieces.size() <= most);
  int64_t at = begin;
  for (const ZeroPiece& piece : pieces) {
    CHECK(piece.begin == at);
    CHECK(piece.local.elements() == piece.end - piece.begin);
    // A box is one run of memory: it is whole in all axes after the first that is cut.
    int64_t offset = 0, stride = 1;
    for (int a = shape.rank() - 1; a >= 0; --a) {
      offset += piece.local.begin[a] * stride;
      stride *= shape[a];
      CHECK(piece.local.begin[a] + piece.local.extent[a] <= shape[a]);
    }
    CHECK(offset == piece.begin);
    bool cut = false;
    for (int a = shape.rank() - 1; a >= 0; --a) {
      if (cut) CHECK(piece.local.extent[a] == 1);
      cut = cut || piece.local.extent[a] != shape[a];
    }
    at = piece.end;
  }
  CHECK(at == end);
}

TEST_CASE("a range of rows is a few boxes") {
  CheckPieces({10}, 0, 10, 1);
  CheckPieces({10}, 4, 4, 0);
  CheckPieces({6, 5}, 5, 25, 1);
  const Shape experts{4, 6, 5};
  for (int64_t begin = 0; begin <= 24; ++begin) {
    for (int64_t end = begin; end <= 24; ++end) CheckPieces(experts, begin * 5, end * 5, 3);
  }
  CHECK(ZeroPieces(experts, 0, 120).size() == 1);
  CHECK(ZeroPieces(experts, 30, 90).size() == 1);
  CHECK_THROWS_AS(ZeroPieces(experts, 3, 30), InternalError);
}

}  // namespace
}  // namespace yardmaster
