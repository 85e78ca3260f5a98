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

class ByteReader;
class ByteWriter;

// A state of a whole run, as named files: docs/checkpoints.md describes each.
struct Checkpoint {
  std::int64_t update = 0;
  std::map<std::string, std::string> files = {};  // name -> bytes; of one that was found, state.json alone
  std::vector<std::string> logs = {};             // paths that must be on disk before it is: it names positions in them
  // To be written: files too large to be copied whole. Called once, by the thread that writes.
  std::map<std::string, std::function<void(ByteWriter&)>> streams = {};
  // To be written first: files of what must not change meanwhile. CheckpointWriter::submit returns once they are.
  std::map<std::string, std::function<void(ByteWriter&)>> still = {};
  // To be called, by the thread that writes, once all of it is on disk.
  std::function<void()> written = {};
  // Of one that was found: its folder, and how many bytes each of its files has.
  std::string path = {};
  std::map<std::string, std::uint64_t> sizes = {};

  bool has(const std::string& name) const { return files.contains(name) || sizes.contains(name); }
  // Runs f over the bytes of a file, a part of them in memory at a time. Throws Error, also where it has no such file or
  // where f leaves some unread.
  void load(const std::string& name, const std::function<void(ByteReader&)>& f) const;
};

// Writes checkpoints under RUN/checkpoints so that a crash at any moment leaves every finished one whole:
//   NUMBER.tmp/ with all files, each synced -> sync logs -> the manifest -> sync folder -> rename to NUMBER
//   -> sync parent -> LATEST.
// Throws RunError, and leaves nothing behind but earlier checkpoints. Then removes the oldest beyond `keep`.
// still_written is called once the files of `still` are, though not yet on disk.
void write_checkpoint(
    const std::string& folder, const Checkpoint& checkpoint, std::int64_t keep,
    const std::function<void()>& still_written = [] {});

// The newest checkpoint in the folder whose manifest, sizes and checksums agree and for which `check` does not throw
// Error. Each newer one is passed over with a line in `passed_over`. Nothing where there is none.
std::optional<Checkpoint> newest_checkpoint(
    const std::string& folder, std::vector<std::string>& passed_over,
    const std::function<void(const Checkpoint&)>& check = [](const Checkpoint&) {});

// Checks every byte of one checkpoint and keeps state.json; throws Error that says what is damaged.
Checkpoint find_checkpoint(const std::string& path);

// The same with the bytes of all its files.
Checkpoint read_checkpoint(const std::string& path);

// Numbers of the checkpoints in the folder, ascending; whole or not.
std::vector<std::int64_t> list_checkpoints(const std::string& folder);

// Writes in the background, one at a time, so that training waits only until what must not change is written, and not
// for the disk. The trainer's thread calls it. A failed write becomes a warning: the last good checkpoint stays,
// and training goes on.
class CheckpointWriter {
 public:
  CheckpointWriter(std::string folder, std::int64_t keep);
  ~CheckpointWriter();

  bool idle();                         // nothing is being written
  void submit(Checkpoint checkpoint);  // waits for the one before, and until what must not change is written
  void finish();                       // waits until all that was submitted is on disk
  std::vector<std::string> take_warnings();

 private:
  void serve();

  const std::string folder_;
  const std::int64_t keep_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Checkpoint> waiting_;
  bool writing_ = false, stopping_ = false, still_ = false;  // the last: what must not change is not yet written
  std::vector<std::string> warnings_;
  std::thread thread_;
};

}  // namespace gipo
