#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace gipo {

// Work of this thread goes to a stream of a CUDA device while it lives; null: nothing changes.
class OnStream {
 public:
  OnStream(void* stream, int device);
  ~OnStream();
  OnStream(const OnStream&) = delete;
  OnStream& operator=(const OnStream&) = delete;

 private:
  struct Guard;
  std::unique_ptr<Guard> guard_;
};

// Graphs of work on one stream, whose shapes and addresses stay the same: recorded once, then launched as one. What the
// work makes stays where it is while this lives; all share it, as they run one after the other.
class TorchGraphs {
 public:
  TorchGraphs(void* stream, int device);
  ~TorchGraphs();
  TorchGraphs(const TorchGraphs&) = delete;
  TorchGraphs& operator=(const TorchGraphs&) = delete;

  // The work must have run before, so that all that is made at a first time is there. What this returns lives no longer
  // than this.
  std::function<void()> record(const std::function<void()>& work);

 private:
  struct Recorded;
  std::unique_ptr<Recorded> recorded_;
};

std::vector<std::string> graph_devices();  // names of the CUDA devices here
// The one in use: its products, the fastest of several algorithms, and threads that sleep while they wait for it.
void set_up_device(bool tf32);

}  // namespace gipo
