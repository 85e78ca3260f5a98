#include "gipo/data/wire.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "gipo/core/allocations.h"
#include "gipo/core/error.h"
#include "gipo/core/random.h"
#include "gipo/data/encode.h"
#include "gipo/io/bytes.h"
#include "gipo/io/checksum.h"
#include "gipo/stats/moments.h"

namespace gipo {
namespace {

constexpr std::size_t kLongest = 5;

TransitionSpec plain() { return plain_transition(3, 2, false); }

TransitionSpec mixed() {
  TransitionSpec spec;
  spec.observation = {{"image", DType::kUint8, {4, 3, 3}},
                      {"count", DType::kInt32, {2}, Role::kPolicy, {7, 9}},
                      {"place", DType::kFloat64, {3}, Role::kCritic},
                      {"valid", DType::kUint8, {5}, Role::kMask},
                      {"action", DType::kInt64, {1}}};  // a name that a column of every transition has
  spec.action_dims = 2;
  spec.state_size = 6;
  spec.choices = {5, 0};
  return spec;
}

bool are_choices(const TransitionSpec& spec, std::size_t column) {
  return column < spec.observation.size() && !spec.observation[column].choices.empty();
}

// Every value another one that a step can have.
Segment filled(const TransitionSpec& spec, std::size_t length, bool discounted, std::uint64_t seed = 1) {
  Segment s(kLongest, spec);
  RandomStream random(seed);
  s.actor = 3, s.incarnation = 2, s.sequence = 40 + length, s.length = length;
  s.terminated = length % 2 == 1, s.truncated = length % 3 == 0;
  s.first_env_step = 1000, s.env_step_stride = 8;
  for (std::size_t c = 0; c < s.layout().columns.size(); ++c) {
    const Column& column = s.layout().columns[c];
    for (std::size_t i = 0; i < s.filled(c).size() / size_of(column.dtype); ++i) {
      const auto whole = static_cast<int>(random.below(5)), grey = are_choices(spec, c) ? whole : 51 * whole;
      if (column.dtype == DType::kUint8) s.table().values<std::uint8_t>(c)[i] = static_cast<std::uint8_t>(grey);
      if (column.dtype == DType::kInt32) s.table().values<std::int32_t>(c)[i] = whole;
      if (column.dtype == DType::kInt64) s.table().values<std::int64_t>(c)[i] = whole;
      if (column.dtype == DType::kFloat32) s.table().values<float>(c)[i] = static_cast<float>(whole);
      if (column.dtype == DType::kFloat64) s.table().values<double>(c)[i] = random.normal();
    }
  }
  if (discounted) {
    for (std::size_t t = 0; t < length; ++t) s.discounted[t] = static_cast<float>(random.normal());
    s.discounted_sums.set(std::span(s.discounted).first(length));
  }
  s.sum_observations();
  return s;
}

std::string encoded(const Segment& s) {
  ByteWriter out;
  encode(s, out);
  return out.take();
}

std::string said(const std::string& message, Segment& into) {
  try {
    decode(message, into);
  } catch (const Error& e) {
    EXPECT_EQ(into.length, 0u);
    return e.what();
  }
  return "nothing";
}

// With the checksum of what the bytes now are.
std::string sealed(std::string message) {
  const std::uint32_t crc = crc32c(std::string_view(message).substr(0, message.size() - 4));
  std::memcpy(message.data() + message.size() - 4, &crc, 4);
  return message;
}

std::string moments_of(const ColumnSums& sums, std::size_t dims) {
  RunningMoments moments(dims);
  moments.add(sums);
  return bytes_of([&](ByteWriter& out) { moments.save(out); });
}

TEST(Wire, SegmentsOfEveryLengthArriveAsTheyWereSent) {
  for (const TransitionSpec& spec : {plain(), mixed()}) {
    Segment got = filled(spec, kLongest, true, 9);  // holds another one
    for (std::size_t length = 1; length <= kLongest; ++length) {
      for (const bool discounted : {false, true}) {
        const Segment sent = filled(spec, length, discounted);
        const std::string message = encoded(sent);
        EXPECT_EQ(message.size(), wire_bytes(sent.layout(), length, 0, discounted));
        decode(message, got);
        EXPECT_EQ(got.actor, 3u);
        EXPECT_EQ(got.incarnation, 2u);
        EXPECT_EQ(got.sequence, 40 + length);
        EXPECT_EQ(got.length, length);
        EXPECT_EQ(got.terminated, sent.terminated);
        EXPECT_EQ(got.truncated, sent.truncated);
        EXPECT_EQ(got.first_env_step, 1000);
        EXPECT_EQ(got.env_step_stride, 8);
        for (std::size_t c = 0; c < sent.layout().columns.size(); ++c) {
          EXPECT_TRUE(std::ranges::equal(got.filled(c), sent.filled(c))) << sent.layout().columns[c].name;
        }
        const std::size_t width = floats_of(spec.observation);
        EXPECT_EQ(moments_of(got.observation_sums, width), moments_of(sent.observation_sums, width));
        EXPECT_EQ(moments_of(got.discounted_sums, 1), moments_of(sent.discounted_sums, 1));
        EXPECT_TRUE(got.finite());
        EXPECT_EQ(encoded(got), message);
      }
    }
  }
}

// Not even for fields of which networks read far more than is sent: four bytes for each of an image, a row of zeros with
// a one for a choice.
TEST(Wire, NothingIsAllocatedForAMessage) {
  TransitionSpec image = plain(), choice = plain(), many = plain();
  image.observation = {{"image", DType::kUint8, {84, 84, 3}}};
  choice.observation = {{"room", DType::kInt64, {}, Role::kPolicy, {100'000}}};
  many.observation = {{"cards", DType::kUint8, {60}, Role::kCritic, std::vector<std::int64_t>(60, 5)},
                      {"speed", DType::kFloat64, {3}}};
  for (const TransitionSpec& spec : {plain(), mixed(), image, choice, many}) {
    SCOPED_TRACE(spec.observation[0].name);
    const std::string message = encoded(filled(spec, kLongest, true));
    Segment got(kLongest, spec);
    allocations.reset();
    decode(message, got);
    EXPECT_EQ(allocations.count, 0);
    EXPECT_EQ(allocations.largest, 0u) << "the message has " << message.size();
    EXPECT_EQ(encoded(got), message);
    std::string damaged = message;
    damaged[message.size() / 2] = static_cast<char>(~damaged[message.size() / 2]);
    allocations.reset();
    EXPECT_THROW(decode(damaged, got), Error);
    EXPECT_LT(allocations.largest, 1024u) << "more than words";
  }
}

// The sums go a few columns at a time.
TEST(Wire, ObservationsAreSummedUpAsTheFloatsThatNetworksRead) {
  TransitionSpec wide = mixed();
  wide.observation[0].shape = {7, 9, 5};
  wide.observation[1].choices = {70, 9};
  for (const TransitionSpec& spec : {mixed(), wide}) {
    const Segment s = filled(spec, kLongest, false);
    const std::size_t width = floats_of(spec.observation);
    std::vector<const std::byte*> columns(spec.observation.size());
    s.locate_observation(0, columns);
    std::vector<float> floats(kLongest * width);
    encode(spec.observation, columns, kLongest, floats.data());
    EXPECT_EQ(moments_of(s.observation_sums, width), moments_of(ColumnSums(width, floats), width));
  }
}

TEST(Wire, EveryFlippedByteIsDetected) {
  for (const TransitionSpec& spec : {plain(), mixed()}) {
    Segment got(kLongest, spec);
    const std::string message = encoded(filled(spec, 3, true));
    for (std::size_t i = 0; i < message.size(); ++i) {
      for (const int flip : {0x01, 0x80, 0xff}) {
        std::string damaged = message;
        damaged[i] = static_cast<char>(damaged[i] ^ flip);
        EXPECT_NE(said(damaged, got), "nothing") << "byte " << i;
      }
    }
  }
}

TEST(Wire, EveryTruncationAndEveryTrailingByteIsDetected) {
  for (const TransitionSpec& spec : {plain(), mixed()}) {
    Segment got(kLongest, spec);
    const std::string message = encoded(filled(spec, 2, true));
    for (std::size_t size = 0; size < message.size(); ++size) {
      EXPECT_NE(said(message.substr(0, size), got), "nothing") << size;
    }
    for (std::size_t more = 1; more < 100; ++more) {
      EXPECT_NE(said(message + std::string(more, '\0'), got), "nothing") << more;
    }
    EXPECT_NE(said(message + message, got), "nothing");
  }
}

TEST(Wire, SaysWhatWasExpectedAndWhatCame) {
  Segment got(kLongest, plain());
  const std::string message = encoded(filled(plain(), 3, false));
  const auto changed = [&](std::size_t at, auto value) {
    std::string other = message;
    std::memcpy(other.data() + at, &value, sizeof value);
    return said(sealed(other), got);
  };
  const auto expect = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  expect(said("hello", got), "cut short: 5 bytes, the shortest has 76");
  expect(changed(0, 'G'), "does not begin with gipo.seg");
  expect(changed(8, std::uint32_t{2}), "its format is 2, this program reads 1");
  expect(changed(40, std::uint64_t{9}), "it has 9 steps, wanted 1 to 5");
  expect(changed(40, std::uint64_t{0}), "it has 0 steps");
  expect(changed(40, ~std::uint64_t{0}), "wanted 1 to 5");
  expect(changed(40, std::uint64_t{2}), "steps have");
  expect(changed(48, std::uint64_t{8}), "unknown flags 0x8");
  expect(changed(56, std::numeric_limits<double>::quiet_NaN()), "environment steps");
  expect(changed(72, std::numeric_limits<float>::infinity()), "observation: one that is not finite");
  expect(changed(message.size() - 12, std::int64_t{-1}), "version: one that is no version");
  expect(said(message.substr(0, message.size() - 1), got), "3 steps have");
  Segment other(kLongest, plain_transition(3, 2, true));
  expect(said(message, other), "its columns have the fingerprint");
}

TEST(Wire, ChoicesThatAreNoneAreRefused) {
  Segment got(kLongest, mixed()), sent = filled(mixed(), 3, false);
  EXPECT_EQ(said(encoded(sent), got), "nothing");
  sent.observation<std::int32_t>(1)[3] = 9;  // of 9
  EXPECT_NE(said(encoded(sent), got).find("count: one that is none of the field's choices"), std::string::npos);
  sent = filled(mixed(), 3, false);
  sent.action()[1] = 0.5F;  // a number
  EXPECT_EQ(said(encoded(sent), got), "nothing");
  for (const float action : {0.5F, 5.0F, -1.0F}) {
    sent.action()[2] = action;  // a choice of 5
    EXPECT_NE(said(encoded(sent), got).find("action: one that is no action of the task"), std::string::npos);
  }
}

TEST(Wire, AnotherListOfColumnsHasAnotherFingerprint) {
  const auto fingerprint = [](const TransitionSpec& spec) { return TransitionLayout(spec).fingerprint; };
  const std::uint32_t own = fingerprint(mixed());
  EXPECT_EQ(fingerprint(mixed()), own);
  TransitionSpec spec = mixed();
  std::swap(spec.observation[0], spec.observation[1]);
  EXPECT_NE(fingerprint(spec), own);
  spec = mixed();
  spec.observation[2].name = "plaice";
  EXPECT_NE(fingerprint(spec), own);
  spec = mixed();
  spec.observation[4].dtype = DType::kFloat64;  // as many bytes
  EXPECT_NE(fingerprint(spec), own);
  spec = mixed();
  spec.state_size = 5;
  EXPECT_NE(fingerprint(spec), own);
  spec = mixed();
  spec.stored = false;
  EXPECT_NE(fingerprint(spec), own);
}

}  // namespace
}  // namespace gipo
