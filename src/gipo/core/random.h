#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace gipo {

// A counter-based random stream (Philox 4x32-10): its whole state is a key and a position, so a stream is cheap to
// derive, to save and to resume. Not thread-safe; each actor, environment and sampler owns its own.
class RandomStream {
 public:
  RandomStream() = default;
  explicit RandomStream(std::uint64_t key) : key_(key) {}

  // The stream of one purpose ("env", "action", "replay", ...) and index under a root seed.
  static RandomStream derive(std::uint64_t root_seed, std::string_view purpose, std::uint64_t index = 0);

  std::uint32_t next_u32();
  std::uint64_t next_u64();
  double uniform();                         // [0, 1), 53 bits
  double uniform(double low, double high);  // [low, high)
  double normal();                          // N(0, 1), Box-Muller; two u64 draws each, so no hidden second value
  std::uint64_t below(std::uint64_t n);     // {0, ..., n-1}, unbiased; n > 0

  template <class Writer>  // ByteWriter
  void save(Writer& out) const {
    out.value(key_);
    out.value(position_);
  }
  template <class Reader>  // ByteReader
  void load(Reader& in) {
    key_ = in.template value<std::uint64_t>();
    position_ = in.template value<std::uint64_t>();
    block_index_ = ~0ull;
  }

 private:
  std::uint64_t key_ = 0;
  std::uint64_t position_ = 0;         // in 32-bit words
  std::uint64_t block_index_ = ~0ull;  // which block block_ holds
  std::array<std::uint32_t, 4> block_{};
};

// A well-mixed seed for one purpose and index under a root seed.
std::uint64_t derive_seed(std::uint64_t root_seed, std::string_view purpose, std::uint64_t index = 0);

}  // namespace gipo
