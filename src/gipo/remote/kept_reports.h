#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

namespace gipo {

class ByteWriter;

// Reports that an actor may have to send again, oldest first: [received][sent][not yet sent]. What the learner has saved
// leaves; beyond `most_bytes` so does what it has received, which only a crash of the learner would lose then. What it has
// not received never leaves: full() asks the actor to wait. Not for several threads at once.
class KeptReports {
 public:
  struct Report {
    std::uint64_t sequence = 0;
    std::int64_t steps = 0;
    std::shared_ptr<ByteWriter> message;  // may be on its way when it leaves here
  };

  explicit KeptReports(std::size_t most_bytes) : most_bytes_(most_bytes) {}

  // What the next report is to be written into: the memory of one that has left, which is not taken anew then.
  std::shared_ptr<ByteWriter> room();
  void add(Report report);
  // The next to be sent; null: none waits.
  const Report* next() const { return sent_ < all_.size() ? &all_[sent_] : nullptr; }
  void sent() { ++sent_; }
  // Reports that are sent and not received; bytes of those that wait to be sent, counted up to `enough`.
  std::size_t under_way() const { return sent_ - received_; }
  std::size_t waiting_bytes(std::size_t enough) const;
  // Sequences below `next`.
  void received(std::uint64_t next);
  void saved(std::uint64_t next);
  // After a break, which a learner may have been started again in: it has all below these, and nothing else.
  void go_back(std::uint64_t received, std::uint64_t saved);

  bool full() const { return bytes_ >= most_bytes_ && received_ == 0; }
  bool all_received() const { return received_ == all_.size(); }
  std::int64_t steps() const { return steps_; }
  std::uint64_t let_go() const { return let_go_; }  // received, not known to be saved
  std::size_t bytes() const { return bytes_; }

 private:
  void drop_first();

  std::size_t most_bytes_;
  std::deque<Report> all_;
  std::size_t sent_ = 0, received_ = 0;  // of all_, from its beginning
  std::size_t bytes_ = 0;
  std::int64_t steps_ = 0;
  std::uint64_t let_go_ = 0;
  std::vector<std::shared_ptr<ByteWriter>> spare_;
  std::size_t spare_bytes_ = 0;  // with bytes_ at most most_bytes_
};

}  // namespace gipo
