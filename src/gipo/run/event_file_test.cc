#include "gipo/run/event_file.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <vector>

#include "gipo/io/checksum.h"
#include "gipo/io/temporary_folder.h"

namespace gipo {
namespace {

template <class T>
T read_at(const std::string& bytes, std::size_t at) {
  T value{};
  if (at + sizeof value > bytes.size()) throw std::runtime_error("record ends early");
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

// The payloads of a record file, every checksum verified.
std::vector<std::string> read_records(const std::string& path) {
  const std::string bytes = read_file(path);
  std::vector<std::string> records;
  for (std::size_t at = 0; at < bytes.size();) {
    const auto size = static_cast<std::size_t>(read_at<std::uint64_t>(bytes, at));
    EXPECT_EQ(read_at<std::uint32_t>(bytes, at + 8), masked_crc32c(std::string_view(bytes).substr(at, 8)));
    records.push_back(bytes.substr(at + 12, size));
    EXPECT_EQ(read_at<std::uint32_t>(bytes, at + 12 + size), masked_crc32c(records.back()));
    at += 12 + size + 4;
  }
  return records;
}

template <class T>
std::string raw(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof value);
}

class EventFiles : public ::testing::Test {
 protected:
  TemporaryFolder folder_;
  const std::string path_ = folder_ / "events.out.tfevents.0";
};

TEST_F(EventFiles, BeginsWithTheVersion) {
  { EventFile file(path_, 1.5); }
  const auto records = read_records(path_);
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0], "\x09" + raw(1.5) + "\x1a\x0d" + "brain.Event:2");
}

TEST_F(EventFiles, ScalarsAreEncodedAsTheSchemaSays) {
  EventFile file(path_, 0.0);
  const std::vector<std::pair<std::string, double>> values{{"kl", 0.5}, {"loss/value", -2.0}};
  file.scalars(300, 2.25, values);
  file.flush();
  const auto records = read_records(path_);
  ASSERT_EQ(records.size(), 2u);
  const std::string kl = "\x0a\x02kl\x15" + raw(0.5f);
  const std::string loss = "\x0a\x0aloss/value\x15" + raw(-2.0f);
  const std::string summary = "\x0a" + std::string(1, static_cast<char>(kl.size())) + kl + "\x0a" +
                              std::string(1, static_cast<char>(loss.size())) + loss;
  EXPECT_EQ(records[1],
            "\x09" + raw(2.25) + "\x10\xac\x02" + "\x2a" + std::string(1, static_cast<char>(summary.size())) + summary);
}

TEST_F(EventFiles, LongTagsAndManyScalarsKeepTheFraming) {
  EventFile file(path_, 0.0);
  std::vector<std::pair<std::string, double>> values;
  values.reserve(200);
  for (int i = 0; i < 200; ++i) values.emplace_back(std::string(150, 'a') + std::to_string(i), i);
  for (int step = 0; step < 20; ++step) file.scalars(step, step, values);
  file.flush();
  EXPECT_EQ(read_records(path_).size(), 21u);
  EXPECT_EQ(file.position(), std::filesystem::file_size(path_));
}

TEST_F(EventFiles, ResumedFileGoesOnWhereTheCheckpointStood) {
  const std::vector<std::pair<std::string, double>> values{{"x", 1.0}};
  std::uint64_t saved = 0;
  {
    EventFile file(path_, 0.0);
    file.scalars(1, 1.0, values);
    saved = file.position();
    file.scalars(2, 2.0, values);
  }
  { EventFile(path_, 9.0, saved).scalars(3, 3.0, values); }
  const auto records = read_records(path_);
  ASSERT_EQ(records.size(), 3u);
  EXPECT_EQ(records[2].substr(9, 2), "\x10\x03");
}

}  // namespace
}  // namespace gipo
