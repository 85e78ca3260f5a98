#include "gipo/train/open_group.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "gipo/core/error.h"
#include "gipo/io/bytes.h"
#include "gipo/objective/advantage.h"

namespace gipo {

void OpenGroup::clear() {
  returns.clear();
  segments.clear();
  episode.clear();
}

void OpenGroup::add(Segment&& segment) {
  // The return of an episode comes before its last segment.
  episode.push_back(returns.size() - (segment.terminated || segment.truncated ? 1 : 0));
  segments.push_back(std::move(segment));
}

void OpenGroup::make_advantages(const AdvantageOptions& options) {
  std::vector<double> advantage(returns.size());
  group_advantages(returns, options.normalise, advantage);
  float after = 0;
  for (std::size_t i = segments.size(); i-- > 0;) {
    Segment& s = segments[i];
    if (i + 1 < segments.size() && episode[i + 1] != episode[i]) after = 0;
    std::ranges::fill(s.advantage().first(s.length), static_cast<float>(advantage[episode[i]]));
    after = discounted_returns(s.reward().first(s.length), options.gamma, after, s.target().first(s.length));
  }
}

void OpenGroup::save(ByteWriter& out) const {
  out.value(number);
  out.array(returns);
  out.value<std::uint64_t>(segments.size());
  for (std::size_t i = 0; i < segments.size(); ++i) {
    out.value<std::uint64_t>(episode[i]);
    out.value<std::uint64_t>(segments[i].context);
    segments[i].save(out);
  }
}

void OpenGroup::load(ByteReader& in, std::size_t group_size, std::size_t segment_length, const TransitionSpec& spec) {
  const auto refuse_if = [](bool wrong) {
    if (wrong) throw Error("saved actor: its open group is damaged");
  };
  clear();
  number = in.value<std::int64_t>();
  refuse_if(number < 0 || number > std::int64_t{1} << 62);
  returns = in.array<double>();
  refuse_if(returns.size() >= group_size || !std::ranges::all_of(returns, [](double r) { return std::isfinite(r); }));
  for (auto left = in.value<std::uint64_t>(); left > 0; --left) {
    const auto of = in.value<std::uint64_t>(), context = in.value<std::uint64_t>();
    refuse_if(of > returns.size() || (!episode.empty() && of < episode.back()) || context > spec.context());
    Segment s(segment_length, spec);
    s.context = static_cast<std::size_t>(context);
    s.load(in);
    for (std::size_t c = 0; c < s.layout().columns.size(); ++c) {
      s.layout().refuse_impossible(c, s.filled(c), "saved actor");
    }
    refuse_if(s.length == 0);
    s.sum_observations();
    episode.push_back(static_cast<std::size_t>(of));
    segments.push_back(std::move(s));
  }
}

}  // namespace gipo
