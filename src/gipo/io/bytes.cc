#include "gipo/io/bytes.h"

#include <algorithm>

#include "gipo/core/error.h"
#include "gipo/io/checksum.h"

namespace gipo {
namespace {

constexpr std::size_t kBlockBytes = 256 * 1024;

}  // namespace

void ByteWriter::flush() {
  if (sink_ && !bytes_.empty()) sink_(bytes_);
  if (sink_) bytes_.clear();
}

void ByteWriter::pass_on(std::string_view bytes) {
  if (bytes_.size() + bytes.size() > kBlockBytes) flush();
  if (bytes.size() >= kBlockBytes) return sink_(bytes);
  if (bytes_.capacity() < kBlockBytes) bytes_.reserve(kBlockBytes);
  bytes_.append(bytes);
}

std::string bytes_of(const std::function<void(ByteWriter&)>& save) {
  std::size_t size = 0;
  ByteWriter count([&size](std::string_view block) { size += block.size(); });
  save(count);
  count.flush();
  ByteWriter out;
  out.reserve(size);
  save(out);
  return out.take();
}

std::uint32_t checksum_of(const std::function<void(ByteWriter&)>& save) {
  std::uint32_t crc = 0;
  ByteWriter out([&crc](std::string_view block) { crc = crc32c(block, crc); });
  save(out);
  out.flush();
  return crc;
}

// What is not in hand: from the source, a large piece straight to its place.
void ByteReader::fetch(char* out, std::size_t size) {
  if (size > left_) {
    throw Error("saved state ends early: " + std::to_string(size) + " bytes wanted, " + std::to_string(left_) +
                " left");
  }
  if (!bytes_.empty()) std::memcpy(out, bytes_.data(), bytes_.size());
  out += bytes_.size();
  size -= bytes_.size();
  left_ -= bytes_.size();
  bytes_ = {};
  if (size >= kBlockBytes) {
    source_(out, size);
  } else {
    block_.resize(std::min(kBlockBytes, left_));
    source_(block_.data(), block_.size());
    std::memcpy(out, block_.data(), size);
    bytes_ = std::string_view(block_).substr(size);
  }
  left_ -= size;
}

std::size_t ByteReader::length(std::size_t element_size) {
  const auto n = value<std::uint64_t>();
  if (n > left_ / element_size) {
    throw Error("saved state holds a length of " + std::to_string(n) + " with " + std::to_string(left_) +
                " bytes left");
  }
  return static_cast<std::size_t>(n);
}

void ByteReader::expect_length(std::size_t found, std::size_t expected) {
  if (found != expected) {
    throw Error("saved state holds an array of " + std::to_string(found) + " where " + std::to_string(expected) +
                " belong");
  }
}

}  // namespace gipo
