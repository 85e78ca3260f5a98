#include "gipo/io/checksum.h"

#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#elif defined(__x86_64__)
#include <nmmintrin.h>
#endif

#include <array>
#include <bit>
#include <cstddef>
#include <cstring>

namespace gipo {
namespace {

static_assert(std::endian::native == std::endian::little, "the eight-byte step reads little-endian words");

constexpr std::uint32_t kPolynomial = 0x82f63b78;  // Castagnoli's, bits reversed
constexpr std::uint32_t kMaskDelta = 0xa282ead8;   // as in TensorFlow's record format

using Tables = std::array<std::array<std::uint32_t, 256>, 8>;

// Table k advances a byte's remainder over k further zero bytes, so eight bytes fold in one step without a dependency
// between their lookups.
constexpr Tables make_tables() {
  Tables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    tables[0][byte] = crc;
  }
  for (std::size_t k = 1; k < tables.size(); ++k) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t before = tables[k - 1][byte];
      tables[k][byte] = (before >> 8) ^ tables[0][before & 0xff];
    }
  }
  return tables;
}

constexpr Tables kTables = make_tables();

// Eight bytes at a time, then the rest, by the processor.
#if defined(__aarch64__)
bool has_instruction() { return (::getauxval(AT_HWCAP) & HWCAP_CRC32) != 0; }

// As text: the headers of some compilers hide the intrinsics from functions with a target of their own.
std::uint32_t by_instruction(std::string_view bytes, std::uint32_t crc) {
  const char* at = bytes.data();
  std::size_t left = bytes.size();
  for (std::uint64_t word = 0; left >= 8; at += 8, left -= 8) {
    std::memcpy(&word, at, 8);
    asm(".arch_extension crc\n\tcrc32cx %w0, %w0, %x1" : "+r"(crc) : "r"(word));
  }
  for (; left > 0; ++at, --left) {
    asm(".arch_extension crc\n\tcrc32cb %w0, %w0, %w1"
        : "+r"(crc)
        : "r"(std::uint32_t{static_cast<std::uint8_t>(*at)}));
  }
  return crc;
}
#elif defined(__x86_64__)
bool has_instruction() { return __builtin_cpu_supports("sse4.2"); }

__attribute__((target("sse4.2"))) std::uint32_t by_instruction(std::string_view bytes, std::uint32_t crc) {
  const char* at = bytes.data();
  std::size_t left = bytes.size();
  for (std::uint64_t word = 0; left >= 8; at += 8, left -= 8) {
    std::memcpy(&word, at, 8);
    crc = static_cast<std::uint32_t>(_mm_crc32_u64(crc, word));
  }
  for (; left > 0; ++at, --left) crc = _mm_crc32_u8(crc, static_cast<unsigned char>(*at));
  return crc;
}
#else
bool has_instruction() { return false; }
std::uint32_t by_instruction(std::string_view, std::uint32_t crc) { return crc; }
#endif

}  // namespace

std::uint32_t crc32c(std::string_view bytes, std::uint32_t previous) {
  static const bool own = has_instruction();
  return own ? ~by_instruction(bytes, ~previous) : crc32c_by_tables(bytes, previous);
}

std::uint32_t crc32c_by_tables(std::string_view bytes, std::uint32_t previous) {
  std::uint32_t crc = ~previous;
  const char* at = bytes.data();
  std::size_t left = bytes.size();

  for (; left >= 8; at += 8, left -= 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, at, 8);
    word ^= crc;
    crc = 0;
    for (std::size_t k = 0; k < 8; ++k) crc ^= kTables[7 - k][(word >> (8 * k)) & 0xff];
  }
  for (; left > 0; ++at, --left) crc = (crc >> 8) ^ kTables[0][(crc ^ static_cast<unsigned char>(*at)) & 0xff];
  return ~crc;
}

std::uint32_t masked_crc32c(std::string_view bytes) { return std::rotr(crc32c(bytes), 15) + kMaskDelta; }

}  // namespace gipo
