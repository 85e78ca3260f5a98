#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace gipo {

// A state of a whole run, as named byte strings: docs/checkpoints.md describes each.
struct Checkpoint {
  std::int64_t update = 0;
  std::map<std::string, std::string> files;  // name -> bytes
  std::vector<std::string> logs = {};        // paths that must be on disk before it is: it names positions in them
};

// Writes checkpoints under RUN/checkpoints so that a crash at any moment leaves every finished one whole:
//   sync logs -> NUMBER.tmp/ with all files, each synced, the manifest last -> sync folder -> rename to NUMBER
//   -> sync parent -> LATEST.
// Throws RunError, and leaves nothing behind but earlier checkpoints. Then removes the oldest beyond `keep`.
void write_checkpoint(const std::string& folder, const Checkpoint& checkpoint, std::int64_t keep);

// The newest checkpoint in the folder whose manifest, sizes and checksums agree and for which `check` does not throw
// Error. Each newer one is passed over with a line in `passed_over`. Nothing where there is none.
std::optional<Checkpoint> newest_checkpoint(
    const std::string& folder, std::vector<std::string>& passed_over,
    const std::function<void(const Checkpoint&)>& check = [](const Checkpoint&) {});

// Reads one checkpoint; throws Error that says what is damaged.
Checkpoint read_checkpoint(const std::string& path);

// Numbers of the checkpoints in the folder, ascending; whole or not.
std::vector<std::int64_t> list_checkpoints(const std::string& folder);

// Writes in the background, so that training waits only for the copy of its state. A checkpoint that comes while
// another is being written waits; one that is still waiting when the next comes is replaced by it. The trainer's thread
// calls it. A failed write becomes a warning: the last good checkpoint stays, and training goes on.
class CheckpointWriter {
 public:
  CheckpointWriter(std::string folder, std::int64_t keep);
  ~CheckpointWriter();

  void submit(Checkpoint checkpoint);
  void finish();  // waits until all that was submitted is on disk
  std::vector<std::string> take_warnings();

 private:
  void serve();

  const std::string folder_;
  const std::int64_t keep_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Checkpoint> waiting_;
  bool writing_ = false, stopping_ = false;
  std::vector<std::string> warnings_;
  std::thread thread_;
};

}  // namespace gipo
