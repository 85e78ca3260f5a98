#include "gipo/remote/kept_reports.h"

#include <algorithm>
#include <utility>

namespace gipo {

void KeptReports::add(Report report) {
  bytes_ += report.bytes->size();
  steps_ += report.steps;
  all_.push_back(std::move(report));
  for (; bytes_ > most_bytes_ && received_ > 0; ++let_go_) drop_first();
}

void KeptReports::received(std::uint64_t next) {
  while (received_ < sent_ && all_[received_].sequence < next) ++received_;
  for (; bytes_ > most_bytes_ && received_ > 0; ++let_go_) drop_first();
}

void KeptReports::saved(std::uint64_t next) {
  while (!all_.empty() && all_.front().sequence < next && received_ > 0) drop_first();
}

void KeptReports::go_back(std::uint64_t received, std::uint64_t saved) {
  const auto first = [&](std::uint64_t next) {
    return static_cast<std::size_t>(
        std::find_if(all_.begin(), all_.end(), [&](const Report& r) { return r.sequence >= next; }) - all_.begin());
  };
  sent_ = received_ = first(received);
  this->saved(saved);
}

void KeptReports::drop_first() {
  bytes_ -= all_.front().bytes->size();
  steps_ -= all_.front().steps;
  all_.pop_front();
  --received_;
  --sent_;
}

}  // namespace gipo
