#include "gipo/replay/high_water.h"

#include <algorithm>

#include "gipo/core/error.h"
#include "gipo/io/bytes.h"

namespace gipo {
namespace {

auto place_of(auto& marks, std::uint64_t actor) {
  return std::lower_bound(marks.begin(), marks.end(), actor,
                          [](const HighWater::Mark& mark, std::uint64_t a) { return mark.actor < a; });
}

}  // namespace

bool HighWater::is_new(const Mark& mark) const {
  const auto place = place_of(marks_, mark.actor);
  return place == marks_.end() || place->actor != mark.actor || mark > *place;
}

bool HighWater::find_and_take(const Mark& mark) {
  const auto place = place_of(marks_, mark.actor);
  if (place != marks_.end() && place->actor == mark.actor) return take_at(*place, mark);
  marks_.insert(place, mark);
  return true;
}

void HighWater::save(ByteWriter& out) const { out.array(marks_); }

void HighWater::load(ByteReader& in) {
  const std::vector<Mark> saved = in.array<Mark>();
  for (std::size_t i = 1; i < saved.size(); ++i) {
    if (saved[i].actor <= saved[i - 1].actor) throw Error("saved replay has two marks of one actor, or out of order");
  }
  for (const Mark& held : marks_) {
    const auto place = place_of(saved, held.actor);
    if (place == saved.end() || place->actor != held.actor || *place < held) {
      throw Error("saved replay holds a segment of actor " + std::to_string(held.actor) + " beyond that actor's mark");
    }
  }
  marks_ = saved;
}

}  // namespace gipo
