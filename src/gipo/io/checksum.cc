#include "gipo/io/checksum.h"

#if defined(__aarch64__)
#include <arm_neon.h>
#include <asm/hwcap.h>
#include <sys/auxv.h>
#elif defined(__x86_64__)
#include <nmmintrin.h>
#include <wmmintrin.h>
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

// Lanes of 16 bytes that are folded onto what lies as far behind them: each half is multiplied by the power of x of that
// distance. A product of reflected numbers is a bit short, hence the shift.
constexpr std::size_t kLanes = 8, kLane = 16, kFold = kLanes * kLane;
constexpr std::uint64_t kLowHalf = std::uint64_t{shift_over(kFold + 4)} << 1;
constexpr std::uint64_t kHighHalf = std::uint64_t{shift_over(kFold - 4)} << 1;

// Eight bytes, one byte and a lane, by the processor.
#if defined(__aarch64__)
bool has_instruction() {
  constexpr unsigned long kNeeded = HWCAP_CRC32 | HWCAP_PMULL;
  return (::getauxval(AT_HWCAP) & kNeeded) == kNeeded;
}

#define GIPO_WITH_CRC
using Lane = uint64x2_t;
// As text: the headers of some compilers hide the intrinsics from functions with a target of their own.
inline std::uint32_t add_word(std::uint32_t crc, std::uint64_t word) {
  asm(".arch_extension crc\n\tcrc32cx %w0, %w0, %x1" : "+r"(crc) : "r"(word));
  return crc;
}
inline std::uint32_t add_byte(std::uint32_t crc, unsigned char byte) {
  asm(".arch_extension crc\n\tcrc32cb %w0, %w0, %w1" : "+r"(crc) : "r"(std::uint32_t{byte}));
  return crc;
}
inline Lane folded(Lane lane, Lane factors, Lane next) {
  Lane low, high;
  asm(".arch_extension crypto\n\tpmull %0.1q, %1.1d, %2.1d" : "=w"(low) : "w"(lane), "w"(factors));
  asm(".arch_extension crypto\n\tpmull2 %0.1q, %1.2d, %2.2d" : "=w"(high) : "w"(lane), "w"(factors));
  return low ^ high ^ next;
}
#elif defined(__x86_64__)
bool has_instruction() { return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul"); }

#define GIPO_WITH_CRC __attribute__((target("sse4.2,pclmul")))
using Lane = __m128i;
GIPO_WITH_CRC inline std::uint32_t add_word(std::uint32_t crc, std::uint64_t word) {
  return static_cast<std::uint32_t>(_mm_crc32_u64(crc, word));
}
GIPO_WITH_CRC inline std::uint32_t add_byte(std::uint32_t crc, unsigned char byte) { return _mm_crc32_u8(crc, byte); }
GIPO_WITH_CRC inline Lane folded(Lane lane, Lane factors, Lane next) {
  const Lane low = _mm_clmulepi64_si128(lane, factors, 0x00), high = _mm_clmulepi64_si128(lane, factors, 0x11);
  return _mm_xor_si128(_mm_xor_si128(low, high), next);
}
#endif

#ifdef GIPO_WITH_CRC
GIPO_WITH_CRC std::uint32_t by_words(std::string_view bytes, std::uint32_t crc) {
  const char* at = bytes.data();
  std::size_t left = bytes.size();
  for (std::uint64_t word = 0; left >= 8; at += 8, left -= 8) {
    std::memcpy(&word, at, 8);
    crc = add_word(crc, word);
  }
  for (; left > 0; ++at, --left) crc = add_byte(crc, static_cast<unsigned char>(*at));
  return crc;
}

// A word needs the checksum of those before it; lanes do not wait for each other.
GIPO_WITH_CRC std::uint32_t by_instruction(std::string_view bytes, std::uint32_t crc) {
  if (bytes.size() < 4 * kFold) return by_words(bytes, crc);
  constexpr std::uint64_t kFactors[2] = {kLowHalf, kHighHalf};
  Lane lanes[kLanes], factors, next;
  std::uint32_t first;
  std::memcpy(&factors, kFactors, kLane);
  std::memcpy(lanes, bytes.data(), kFold);
  std::memcpy(&first, lanes, sizeof first);
  first ^= crc;
  std::memcpy(lanes, &first, sizeof first);
  for (bytes.remove_prefix(kFold); bytes.size() >= kFold; bytes.remove_prefix(kFold)) {
#pragma GCC unroll 8
    for (std::size_t i = 0; i < kLanes; ++i) {  // in registers
      std::memcpy(&next, bytes.data() + i * kLane, kLane);
      lanes[i] = folded(lanes[i], factors, next);
    }
  }
  char last[kFold];  // of the same checksum as all that was folded
  std::memcpy(last, lanes, kFold);
  return by_words(bytes, by_words({last, kFold}, 0));
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
