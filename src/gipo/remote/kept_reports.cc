#include "gipo/remote/kept_reports.h"

#include <algorithm>
#include <utility>

#include "gipo/core/sole_holder.h"
#include "gipo/io/bytes.h"

namespace gipo {

std::shared_ptr<ByteWriter> KeptReports::room() {
  if (spare_.empty()) return std::make_shared<ByteWriter>();
  std::shared_ptr<ByteWriter> message = std::move(spare_.back());
  spare_.pop_back();
  spare_bytes_ -= message->bytes().size();
  return message;
}

void KeptReports::add(Report report) {
  bytes_ += report.message->bytes().size();
  steps_ += report.steps;
  all_.push_back(std::move(report));
  for (; bytes_ > most_bytes_ && received_ > 0; ++let_go_) drop_first();
}

std::size_t KeptReports::waiting_bytes(std::size_t enough) const {
  std::size_t bytes = 0;
  for (std::size_t i = sent_; i < all_.size() && bytes < enough; ++i) bytes += all_[i].message->bytes().size();
  return bytes;
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
  std::shared_ptr<ByteWriter>& message = all_.front().message;
  const std::size_t size = message->bytes().size();
  bytes_ -= size;
  steps_ -= all_.front().steps;
  // gRPC has read it, and it is not much larger than what it holds.
  if (sole_holder(message) && message->bytes().capacity() <= 2 * size && bytes_ + spare_bytes_ + size <= most_bytes_) {
    spare_bytes_ += size;
    spare_.push_back(std::move(message));
  }
  all_.pop_front();
  --received_;
  --sent_;
}

}  // namespace gipo
