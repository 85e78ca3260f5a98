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

// Checksums are remainders of polynomials, the lowest bit the highest power. a * b, of two of them.
constexpr std::uint32_t product(std::uint32_t a, std::uint32_t b) {
  std::uint32_t sum = 0;
  for (; a != 0; a <<= 1) {
    sum ^= b & (0 - (a >> 31));
    b = (b >> 1) ^ (kPolynomial & (0 - (b & 1)));
  }
  return sum;
}

// x^8, x^16, x^32, ...
constexpr std::array<std::uint32_t, 64> kPowers = [] {
  std::array<std::uint32_t, 64> powers{std::uint32_t{1} << 23};
  for (std::size_t k = 1; k < powers.size(); ++k) powers[k] = product(powers[k - 1], powers[k - 1]);
  return powers;
}();

// What a remainder is multiplied by when so many bytes follow: x^(8 * bytes).
constexpr std::uint32_t shift_over(std::uint64_t bytes) {
  std::uint32_t shift = std::uint32_t{1} << 31;  // 1
  for (std::size_t k = 0; bytes != 0; bytes >>= 1, ++k) {
    if ((bytes & 1) != 0) shift = product(shift, kPowers[k]);
  }
  return shift;
}

// Eight bytes or one, by the processor.
#if defined(__aarch64__)
bool has_instruction() { return (::getauxval(AT_HWCAP) & HWCAP_CRC32) != 0; }

// As text: the headers of some compilers hide the intrinsics from functions with a target of their own.
inline std::uint32_t add_word(std::uint32_t crc, const char* at) {
  std::uint64_t word;
  std::memcpy(&word, at, 8);
  asm(".arch_extension crc\n\tcrc32cx %w0, %w0, %x1" : "+r"(crc) : "r"(word));
  return crc;
}
inline std::uint32_t add_byte(std::uint32_t crc, char byte) {
  asm(".arch_extension crc\n\tcrc32cb %w0, %w0, %w1" : "+r"(crc) : "r"(std::uint32_t{static_cast<std::uint8_t>(byte)}));
  return crc;
}
#define GIPO_WITH_CRC
#elif defined(__x86_64__)
bool has_instruction() { return __builtin_cpu_supports("sse4.2"); }

#define GIPO_WITH_CRC __attribute__((target("sse4.2")))
GIPO_WITH_CRC inline std::uint32_t add_word(std::uint32_t crc, const char* at) {
  std::uint64_t word;
  std::memcpy(&word, at, 8);
  return static_cast<std::uint32_t>(_mm_crc32_u64(crc, word));
}
GIPO_WITH_CRC inline std::uint32_t add_byte(std::uint32_t crc, char byte) {
  return _mm_crc32_u8(crc, static_cast<unsigned char>(byte));
}
#else
bool has_instruction() { return false; }
std::uint32_t add_word(std::uint32_t crc, const char*) { return crc; }
std::uint32_t add_byte(std::uint32_t crc, char) { return crc; }
#define GIPO_WITH_CRC
#endif

GIPO_WITH_CRC std::uint32_t by_instruction(std::string_view bytes, std::uint32_t crc) {
  const char* at = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 8; at += 8, left -= 8) crc = add_word(crc, at);
  for (; left > 0; ++at, --left) crc = add_byte(crc, *at);
  return crc;
}

// An instruction needs the result of the one before: three stretches side by side keep the processor busy.
constexpr std::size_t kStretch = 2048;
constexpr std::uint32_t kShift = shift_over(kStretch);

GIPO_WITH_CRC std::uint32_t three_stretches(const char* at, std::uint32_t crc) {
  std::uint32_t second = 0, third = 0;
  for (const char* const end = at + kStretch; at < end; at += 8) {
    crc = add_word(crc, at);
    second = add_word(second, at + kStretch);
    third = add_word(third, at + 2 * kStretch);
  }
  return product(kShift, product(kShift, crc) ^ second) ^ third;
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes, std::uint32_t previous) {
  static const bool own = has_instruction();
  if (!own) return crc32c_by_tables(bytes, previous);
  std::uint32_t crc = ~previous;
  for (; bytes.size() >= 3 * kStretch; bytes.remove_prefix(3 * kStretch)) crc = three_stretches(bytes.data(), crc);
  return ~by_instruction(bytes, crc);
}

std::uint32_t crc32c_joined(std::uint32_t a, std::uint32_t b, std::uint64_t bytes_of_b) {
  return product(shift_over(bytes_of_b), a) ^ b;
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
