#include "gipo/data/encode.h"

#include <gtest/gtest.h>

#include <cstring>

#include "gipo/env/env.h"

namespace gipo {
namespace {

template <class T>
const std::byte* bytes(const std::vector<T>& values) {
  return reinterpret_cast<const std::byte*>(values.data());
}

TEST(Encode, EveryTypeOfField) {
  const Fields fields = {{"row", DType::kFloat32, {2}},   {"image", DType::kUint8, {1, 2}},
                         {"bytes", DType::kUint8, {2}},   {"count", DType::kInt32, {}},
                         {"large", DType::kInt64, {1}},   {"choice", DType::kInt32, {2}, Role::kPolicy, {3, 2}},
                         {"double", DType::kFloat64, {1}}};
  EXPECT_EQ(policy_width(fields), 2u + 2 + 2 + 1 + 1 + 5 + 1);
  EXPECT_EQ(critic_width(fields), 0u);
  EXPECT_EQ(floats_of(fields), 14u);
  // Two observations.
  const std::vector<float> row = {1.5F, -2, 3, 4};
  const std::vector<std::uint8_t> image = {0, 255, 51, 102}, numbers = {7, 255, 1, 0};
  const std::vector<std::int32_t> count = {-5, 6}, choice = {2, 0, 0, 1};
  const std::vector<std::int64_t> large = {std::int64_t{1} << 40, -3};
  const std::vector<double> twice = {0.1, 0.2};
  const std::vector<const std::byte*> columns = {bytes(row),   bytes(image),  bytes(numbers), bytes(count),
                                                 bytes(large), bytes(choice), bytes(twice)};
  std::vector<float> out(2 * 14, -1);
  encode(fields, columns, 2, out.data());
  EXPECT_EQ(
      out,
      (std::vector<float>{
          1.5F, -2, 0, 1, 7, 255, -5,  1099511627776.0F, 0, 0, 1, 1, 0, 0.1F, 3, 4, 51.0F / 255, 102.0F / 255, 1, 0, 6,
          -3,   1,  0, 0, 0, 1,   0.2F}));
}

TEST(Encode, FieldsOfTheCriticComeLastAndAMaskNowhere) {
  const Fields fields = {{"secret", DType::kFloat32, {1}, Role::kCritic},
                         {"action_mask", DType::kUint8, {3}, Role::kMask},
                         {"seen", DType::kFloat32, {2}}};
  EXPECT_EQ(policy_width(fields), 2u);
  EXPECT_EQ(critic_width(fields), 1u);
  const std::vector<float> secret = {9, 8}, seen = {1, 2, 3, 4};
  const std::vector<std::uint8_t> mask(6, 1);
  const std::vector<const std::byte*> columns = {bytes(secret), bytes(mask), bytes(seen)};
  std::vector<float> out(6);
  encode(fields, columns, 2, out.data());
  EXPECT_EQ(out, (std::vector<float>{1, 2, 9, 3, 4, 8}));
  std::vector<float> policy(4);
  encode(fields, Role::kPolicy, columns, 2, policy.data(), 2);
  EXPECT_EQ(policy, seen);
}

}  // namespace
}  // namespace gipo
