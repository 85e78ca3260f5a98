// In place of torch_graph.cc, where the program is built without CUDA.
#include "gipo/policy/torch/torch_graph.h"

namespace gipo {

std::unique_ptr<TorchGraph> record_graph(const std::function<void()>&) { return nullptr; }
std::vector<std::string> graph_devices() { return {}; }

}  // namespace gipo
