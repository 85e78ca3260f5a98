#include "gipo/vla/torch/torch_graph.h"

#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <deque>

namespace gipo {
namespace {

c10::cuda::CUDAStream stream_of(void* stream, int device) {
  return c10::cuda::getStreamFromExternal(static_cast<cudaStream_t>(stream), static_cast<c10::DeviceIndex>(device));
}

}  // namespace

struct OnStream::Guard {
  explicit Guard(c10::cuda::CUDAStream stream) : guard(stream) {}
  c10::cuda::CUDAStreamGuard guard;
};

OnStream::OnStream(void* stream, int device) {
  if (stream) guard_ = std::make_unique<Guard>(stream_of(stream, device));
}
OnStream::~OnStream() = default;

struct TorchGraphs::Recorded {
  c10::cuda::CUDAStream stream;
  std::deque<at::cuda::CUDAGraph> graphs;
};

TorchGraphs::TorchGraphs(void* stream, int device)
    : recorded_(std::make_unique<Recorded>(Recorded{stream_of(stream, device), {}})) {}
TorchGraphs::~TorchGraphs() = default;

std::function<void()> TorchGraphs::record(const std::function<void()>& work) {
  const c10::cuda::CUDAStreamGuard guard(recorded_->stream);
  recorded_->stream.synchronize();
  const at::cuda::MempoolId_t pool =
      recorded_->graphs.empty() ? at::cuda::MempoolId_t{0, 0} : recorded_->graphs.front().pool();
  at::cuda::CUDAGraph& graph = recorded_->graphs.emplace_back();
  graph.capture_begin(pool, cudaStreamCaptureModeRelaxed);  // gradients are put there by a thread of libtorch's
  work();
  graph.capture_end();
  return [this, &graph] {
    const c10::cuda::CUDAStreamGuard on(recorded_->stream);
    graph.replay();
  };
}

std::vector<std::string> graph_devices() {
  std::vector<std::string> names;
  for (int i = 0; i < static_cast<int>(c10::cuda::device_count()); ++i) {
    names.emplace_back(at::cuda::getDeviceProperties(i)->name);
  }
  return names;
}

void set_up_device(bool tf32) {
  at::globalContext().setFloat32MatmulPrecision(tf32 ? "high" : "highest");
  at::globalContext().setAllowTF32CuDNN(tf32);
  at::globalContext().setBenchmarkCuDNN(true);
  C10_CUDA_CHECK(cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync));
}

}  // namespace gipo
