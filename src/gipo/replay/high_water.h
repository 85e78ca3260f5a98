#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace gipo {

class ByteReader;
class ByteWriter;

// Of every actor the last segment that was taken. An actor numbers its segments upwards, and an incarnation of it begins
// anew: what is not greater than its mark was taken before, however often and late it is sent again.
class HighWater {
 public:
  struct Mark {
    std::uint64_t actor = 0, incarnation = 0, sequence = 0;
    auto operator<=>(const Mark&) const = default;
  };

  bool is_new(const Mark& mark) const;
  bool take(const Mark& mark);  // false where it is not new
  void clear() { marks_.clear(); }
  std::size_t bytes() const { return marks_.capacity() * sizeof(Mark); }

  void save(ByteWriter& out) const;
  // The marks here are of the segments that are held; the saved ones are at least as high. Throws Error.
  void load(ByteReader& in);

 private:
  std::vector<Mark> marks_;  // by actor
};

}  // namespace gipo
