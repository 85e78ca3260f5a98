// In place of torch_graph.cc, where the program is built without CUDA: no stream is ever given.
#include "gipo/core/error.h"
#include "gipo/vla/torch/torch_graph.h"

namespace gipo {

struct OnStream::Guard {};
OnStream::OnStream(void* stream, int) { GIPO_CHECK(stream == nullptr); }
OnStream::~OnStream() = default;

struct TorchGraphs::Recorded {};
TorchGraphs::TorchGraphs(void*, int) { GIPO_NOT_REACHED(); }
TorchGraphs::~TorchGraphs() = default;
std::function<void()> TorchGraphs::record(const std::function<void()>&) { GIPO_NOT_REACHED(); }

std::vector<std::string> graph_devices() { return {}; }
void set_up_device(bool) {}

}  // namespace gipo
