#pragma once

#include <cstdint>
#include <string_view>

namespace gipo {

// CRC-32C (Castagnoli). Incremental: crc32c(b, crc32c(a)) is the checksum of a followed by b.
// With the processor's own instruction where it has one, ten times as fast as the tables.
std::uint32_t crc32c(std::string_view bytes, std::uint32_t previous = 0);
std::uint32_t crc32c_by_tables(std::string_view bytes, std::uint32_t previous = 0);
// Of a followed by b, by the checksums of the two alone: their bytes are not read again.
std::uint32_t crc32c_joined(std::uint32_t a, std::uint32_t b, std::uint64_t bytes_of_b);

// The form in which TensorBoard's record files store it: rotated and offset, so that the checksum of data that itself
// holds checksums stays well mixed.
std::uint32_t masked_crc32c(std::string_view bytes);

}  // namespace gipo
