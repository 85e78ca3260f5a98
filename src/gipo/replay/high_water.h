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
  // False where it is not new.
  bool take(const Mark& mark) {
    // Actors are numbered from 0 on: once all are known, each stands at its number.
    if (mark.actor >= marks_.size() || marks_[mark.actor].actor != mark.actor) return find_and_take(mark);
    return take_at(marks_[mark.actor], mark);
  }
  const std::vector<Mark>& marks() const { return marks_; }  // one of each actor, by its number
  void clear() { marks_.clear(); }
  std::size_t bytes() const { return marks_.capacity() * sizeof(Mark); }

  void save(ByteWriter& out) const;
  // The marks here are of the segments that are held; the saved ones are at least as high. Throws Error.
  void load(ByteReader& in);

 private:
  static bool take_at(Mark& held, const Mark& mark) {
    if (mark.incarnation < held.incarnation ||
        (mark.incarnation == held.incarnation && mark.sequence <= held.sequence)) {
      return false;
    }
    held = mark;
    return true;
  }
  bool find_and_take(const Mark& mark);

  std::vector<Mark> marks_;  // by actor
};

}  // namespace gipo
