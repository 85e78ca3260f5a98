#include "gipo/policy/torch/torch_graph.h"

#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <mutex>

namespace gipo {
namespace {

constexpr int kWarmUps = 3;

class CudaGraph final : public TorchGraph {
 public:
  explicit CudaGraph(const std::function<void()>& work) {
    // One at a time; all on one stream, as gradients run on that of their forward.
    static std::mutex mutex;
    static const c10::cuda::CUDAStream stream = c10::cuda::getStreamFromPool();
    const std::lock_guard lock(mutex);
    c10::cuda::getCurrentCUDAStream().synchronize();
    const c10::cuda::CUDAStreamGuard guard(stream);
    for (int i = 0; i < kWarmUps; ++i) work();
    stream.synchronize();
    graph_.capture_begin({0, 0}, cudaStreamCaptureModeRelaxed);
    work();
    graph_.capture_end();
  }

  void replay() override { graph_.replay(); }

 private:
  at::cuda::CUDAGraph graph_;
};

}  // namespace

std::unique_ptr<TorchGraph> record_graph(const std::function<void()>& work) {
  return std::make_unique<CudaGraph>(work);
}

std::vector<std::string> graph_devices() {
  std::vector<std::string> names;
  for (int i = 0; i < static_cast<int>(c10::cuda::device_count()); ++i) {
    names.emplace_back(at::cuda::getDeviceProperties(i)->name);
  }
  return names;
}

}  // namespace gipo
