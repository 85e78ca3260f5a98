#include "gipo/io/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>

#include "gipo/core/error.h"

namespace gipo {
namespace {

const std::vector<float> kWeights{1.5f, -2.0f, 0.25f, 3.0f, 4.0f, 5.0f};
const std::vector<double> kMoments{1e300, -1e-300};
const std::vector<std::int64_t> kStep{-7};

std::string example() {
  const std::vector<TensorView> tensors{
      view_tensor<float>("actor.0.weight", {2, 3}, kWeights),
      view_tensor<double>("moments", {2}, kMoments),
      view_tensor<std::int64_t>("step", {}, kStep),
      view_tensor<float>("nothing", {0, 4}, {}),
  };
  return write_safetensors(tensors, {{"format", "gipo"}, {"version", "12"}});
}

std::string file_of(const std::string& header, const std::string& data) {
  const std::uint64_t size = header.size();
  return std::string(reinterpret_cast<const char*>(&size), 8) + header + data;
}

std::string complaint(const std::string& bytes) {
  try {
    const SafeTensors file(bytes, "w.safetensors");
  } catch (const Error& e) {
    return e.what();
  }
  return "accepted";
}

TEST(SafeTensors, ReadsBackWhatWasWritten) {
  const SafeTensors file(example(), "x");
  EXPECT_EQ(file.metadata(), (TensorMetadata{{"format", "gipo"}, {"version", "12"}}));
  EXPECT_EQ(file.entries().size(), 4u);
  EXPECT_EQ(file.entries().at("actor.0.weight").shape, (Shape{2, 3}));
  EXPECT_EQ(file.read<float>("actor.0.weight"), kWeights);
  EXPECT_EQ(file.read<double>("moments"), kMoments);
  EXPECT_EQ(file.read<std::int64_t>("step"), kStep);
  EXPECT_TRUE(file.read<float>("nothing").empty());
}

TEST(SafeTensors, LayoutIsAsSpecified) {
  const std::vector<float> value{1.0f};
  const std::string bytes = write_safetensors(std::vector<TensorView>{view_tensor<float>("a", {1}, value)});
  const std::string header = R"({"a":{"data_offsets":[0,4],"dtype":"F32","shape":[1]}})";
  EXPECT_EQ(bytes, file_of(header + std::string(8 - header.size() % 8, ' '), std::string("\0\0\x80\x3f", 4)));
}

TEST(SafeTensors, OrderOfTensorsDoesNotMatter) {
  const TensorView a = view_tensor<float>("a", {6}, kWeights);
  const TensorView b = view_tensor<double>("b", {2}, kMoments);
  EXPECT_EQ(write_safetensors(std::vector<TensorView>{a, b}), write_safetensors(std::vector<TensorView>{b, a}));
}

TEST(SafeTensors, EveryTensorIsAligned) {
  const SafeTensors file(example(), "x");
  for (const auto& [name, entry] : file.entries()) EXPECT_EQ(entry.begin % size_of(entry.type), 0u) << name;
}

TEST(SafeTensors, MistakesOfTheWriterAreInvariants) {
  EXPECT_THROW(view_tensor<float>("a", {5}, kWeights), InvariantError);
  const TensorView a = view_tensor<float>("a", {6}, kWeights);
  const TensorView reserved = view_tensor<float>("__metadata__", {6}, kWeights);
  EXPECT_THROW(write_safetensors(std::vector<TensorView>{a, a}), InvariantError);
  EXPECT_THROW(write_safetensors(std::vector<TensorView>{reserved}), InvariantError);
}

TEST(SafeTensors, WrongNameTypeOrShapeIsRefused) {
  const SafeTensors file(example(), "x");
  std::vector<float> out(6);
  file.read<float>("actor.0.weight", {2, 3}, out);
  EXPECT_EQ(out, kWeights);
  EXPECT_THROW(file.read<float>("actor.0.weight", {3, 2}, out), Error);
  EXPECT_THROW(file.read<double>("actor.0.weight"), Error);
  EXPECT_THROW(file.read<float>("missing"), Error);
}

TEST(SafeTensors, MetadataThatIsNoUtf8IsStillSaved) {
  const SafeTensors file(write_safetensors({}, {{"name", "\xff"}}), "x");
  EXPECT_EQ(file.metadata().at("name"), "\xef\xbf\xbd");
}

TEST(SafeTensors, EveryTruncationIsRefused) {
  const std::string whole = example();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    ASSERT_THROW(SafeTensors(whole.substr(0, size), "x"), Error) << size;
  }
  EXPECT_THROW(SafeTensors(whole + "x", "x"), Error);
}

// No flipped byte may do worse than an Error: crash, hang or an allocation the file's size does not justify.
TEST(SafeTensors, DamagedHeadersNeverCrash) {
  const std::string whole = example();
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, whole.data(), 8);
  for (std::size_t at = 0; at < 8 + header_bytes; ++at) {
    for (const char flip : {'\x01', '\x10', '\x80'}) {
      std::string damaged = whole;
      damaged[at] = static_cast<char>(damaged[at] ^ flip);
      try {
        const SafeTensors file(damaged, "x");
        for (const auto& [name, entry] : file.entries()) EXPECT_LE(entry.end, damaged.size());
      } catch (const Error&) {
      }
    }
  }
}

TEST(SafeTensors, DamageIsNamed) {
  EXPECT_EQ(complaint("abc"), "w.safetensors: too short for a safetensors file");
  EXPECT_EQ(complaint(std::string(8, '\xff')), "w.safetensors: header of 18446744073709551615 bytes in a file of 8");
  EXPECT_EQ(complaint(file_of("[]", "")), "w.safetensors: header is no JSON object");
  EXPECT_EQ(complaint(file_of("{", "")), "w.safetensors: header:1: not valid JSON");
  EXPECT_EQ(complaint(file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                              R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
                              "1234")),
            "w.safetensors: header: the key a stands there twice");
  EXPECT_EQ(complaint(file_of("{\"a\":" + std::string(1'000'000, '['), "")),
            "w.safetensors: header: a: lists and objects more than 4 deep");
  EXPECT_EQ(complaint(file_of(R"({"a":1})", "")), "w.safetensors: tensor a: dtype, shape or data_offsets is missing");
  EXPECT_EQ(complaint(file_of(R"({"a":{"dtype":"F8_E4M3","shape":[1],"data_offsets":[0,2]}})", "12")),
            "w.safetensors: tensor a: dtype is \"F8_E4M3\", F32, F64, I64, U8, BF16 and F16 are known");
  EXPECT_EQ(complaint(file_of(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", "1234")),
            "w.safetensors: tensor a: shape is no list of sizes");
  EXPECT_EQ(complaint(file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", "1234")),
            "w.safetensors: tensor a: bytes 0 to 8 lie outside the 4 bytes of data");
  EXPECT_EQ(complaint(file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", "1234")),
            "w.safetensors: tensor a: F32 [2] does not fill 4 bytes");
  // 4 * 2^62 wraps around to zero.
  EXPECT_EQ(complaint(file_of(R"({"a":{"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0]}})", "")),
            "w.safetensors: tensor a: F32 [4611686018427387904] does not fill 0 bytes");
  EXPECT_EQ(complaint(file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "12345678")),
            "w.safetensors: tensors end at byte 4 of 8 bytes of data");
  EXPECT_EQ(complaint(file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", "12345678")),
            "w.safetensors: tensors leave a gap or overlap at byte 0 of the data");
  EXPECT_EQ(complaint(file_of(R"({"__metadata__":{"a":1}})", "")), "w.safetensors: __metadata__ is no map of texts");
}

}  // namespace
}  // namespace gipo
