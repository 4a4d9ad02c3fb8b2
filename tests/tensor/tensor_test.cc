#include "src/tensor/tensor.h"

#include <cmath>
#include <limits>

#include "src/tensor/dtype.h"
#include "src/tensor/shard_spec.h"
#include "tests/catch.h"

namespace yardmaster {
namespace {

TEST_CASE("bf16 rounds to nearest even and keeps infinities and NaN") {
  const auto round = [](float f) { return static_cast<float>(BFloat16(f)); };
  CHECK(round(1.0f) == 1.0f);
  CHECK(round(1.00390625f) == 1.0f);          // 1 + 2^-8: a tie, down to even
  CHECK(round(1.01171875f) == 1.015625f);     // 1 + 3 * 2^-8: a tie, up to even
  CHECK(round(1.0039063692f) == 1.0078125f);  // just above the first tie
  CHECK(round(-2.0f) == -2.0f);
  CHECK(std::isinf(round(std::numeric_limits<float>::max())));
  CHECK(std::isinf(round(std::numeric_limits<float>::infinity())));
  uint32_t bits = 0x7f800001u;  // a NaN whose payload is cut away
  float nan;
  std::memcpy(&nan, &bits, 4);
  CHECK(std::isnan(round(nan)));
}

TEST_CASE("views of a tensor share its memory and count in elements") {
  HostTensor host(DType::kF32, {2, 3, 4});
  for (int i = 0; i < 24; ++i) host.as<float>()[i] = static_cast<float>(i);
  const Tensor t = host.view();
  CHECK(t.rows() == 6);
  CHECK(t.cols() == 4);
  CHECK(t.bytes() == 96);
  CHECK(t.At(1).as<float>()[0] == 12);
  CHECK(t.At(1).shape() == Shape{3, 4});
  CHECK(t.Slice(1, 2).as<float>()[0] == 12);
  const Tensor cols = t.Reshape({6, 4}).Cols(1, 3);
  CHECK(cols.as<float>()[0] == 1);
  CHECK(cols.ld() == 4);
  CHECK_FALSE(cols.contiguous());
  CHECK(cols.Slice(2, 4).as<float>()[0] == 9);
  CHECK(cols.Slice(2, 4).ld() == 4);
  CHECK_THROWS_AS(cols.Reshape({12}), InternalError);
  CHECK_THROWS_AS(t.Reshape({5, 5}), InternalError);
  CHECK_THROWS_AS(t.Slice(1, 3), InternalError);
  CHECK_THROWS_AS(t.as<double>(), InternalError);
}

TEST_CASE("empty and scalar tensors") {
  const HostTensor scalar(DType::kF64, Shape());
  CHECK(scalar.elements() == 1);
  CHECK(scalar.view().rows() == 1);
  const HostTensor none(DType::kI32, {0, 7});
  CHECK(none.view().bytes() == 0);
  CHECK(none.view().rows() == 0);
  CHECK(HostTensor(DType::kI32, {5, 0}).view().rows() == 5);
  CHECK_FALSE(Tensor().defined());
  CHECK(reinterpret_cast<uintptr_t>(HostTensor(DType::kF32, {3}).view().data()) % 64 == 0);
}

TEST_CASE("boxes intersect axis by axis") {
  const Box whole = Box::Whole({4, 6});
  CHECK(whole.elements() == 24);
  const Box a{{1, 2}, {2, 3}}, b{{2, 0}, {2, 3}};
  CHECK(Intersect(a, b) == Box{{2, 2}, {1, 1}});
  CHECK(Intersect(a, whole) == a);
  CHECK(Intersect(a, Box{{3, 0}, {1, 6}}).elements() == 0);
  CHECK(Box::Whole(Shape()).elements() == 1);
  CHECK_THROWS_AS(Intersect(a, Box::Whole({3})), InternalError);
  CHECK(ShardSpec::Replicated({4, 6}).box == whole);
}

}  // namespace
}  // namespace yardmaster
