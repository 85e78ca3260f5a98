#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace gipo {

// Work on a CUDA device whose shapes and addresses stay the same: recorded once, then launched as one.
class TorchGraph {
 public:
  virtual ~TorchGraph() = default;
  virtual void replay() = 0;
};
// Runs the work a few times, so that all that is made at a first time is there, and records it. What it makes stays where
// it is while the graph lives. Null where this program was built without CUDA.
std::unique_ptr<TorchGraph> record_graph(const std::function<void()>& work);

std::vector<std::string> graph_devices();  // names of the CUDA devices here

}  // namespace gipo
