#include "gipo/learner/cuda/memory.h"

#include <fmt/format.h>

#include "gipo/core/error.h"

namespace gipo::cuda {
namespace {

constexpr int kLooks = 100;  // some tens of microseconds

}  // namespace

void check(cudaError_t result, const char* what) {
  if (result == cudaSuccess) return;
  throw RunError(fmt::format("CUDA device: {}: {}", what, cudaGetErrorString(result)));
}

void check_card_usable(int card, const std::string& wanted_by, const char* others) {
  int cards = 0;
  if (const cudaError_t found = cudaGetDeviceCount(&cards); found != cudaSuccess || cards == 0) {
    cudaGetLastError();
    throw Error(fmt::format("{}: no card can be used ({}); {}", wanted_by,
                            found == cudaSuccess ? "none is there" : cudaGetErrorString(found), others));
  }
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, card), "its properties");
  if (properties.major < 9) {
    throw Error(fmt::format("{}: {} has compute capability {}.{}, and 9.0 or newer is needed; {}", wanted_by,
                            properties.name, properties.major, properties.minor, others));
  }
}

void* allocate_on_card(std::size_t bytes) {
  void* memory = nullptr;
  if (const cudaError_t made = cudaMalloc(&memory, bytes); made != cudaSuccess) {
    cudaGetLastError();
    std::size_t free = 0, total = 0;
    cudaMemGetInfo(&free, &total);
    throw RunError(fmt::format(
        "CUDA device: {}: {:.1f} MB were asked for, and {:.1f} of {:.1f} MB are free: lower learner.batch_size",
        cudaGetErrorString(made), static_cast<double>(bytes) / 1e6, static_cast<double>(free) / 1e6,
        static_cast<double>(total) / 1e6));
  }
  check(cudaMemset(memory, 0, bytes), "memory of the card");
  return memory;
}

void* allocate_pinned(std::size_t bytes) {
  void* memory = nullptr;
  check(cudaMallocHost(&memory, bytes), "pinned memory of the host");
  return memory;
}

void free_on_card(void* memory) { cudaFree(memory); }
void free_pinned(void* memory) { cudaFreeHost(memory); }

Stream::Stream() { check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "a stream"); }
Stream::~Stream() { cudaStreamDestroy(stream_); }

Event::Event() { check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming | cudaEventBlockingSync), "an event"); }
Event::~Event() { cudaEventDestroy(event_); }
void Event::record(cudaStream_t stream) { check(cudaEventRecord(event_, stream), "an event"); }
// What is nearly over is looked for, which is quicker than to sleep; what takes longer leaves the core to others: actors, and
// other runs on the same card.
void Event::wait() const {
  for (int i = 0; i < kLooks; ++i) {
    if (const cudaError_t state = cudaEventQuery(event_); state != cudaErrorNotReady) return check(state, "an update");
    cudaGetLastError();  // it remembers that
  }
  check(cudaEventSynchronize(event_), "an update");
}
void Event::hold_back(cudaStream_t stream) const { check(cudaStreamWaitEvent(stream, event_, 0), "an event"); }

Graph::~Graph() {
  if (graph_) cudaGraphExecDestroy(graph_);
}
void Graph::begin(cudaStream_t stream) {
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "the graph of an update");
}
void Graph::end(cudaStream_t stream) {
  cudaGraph_t drawn = nullptr;
  check(cudaStreamEndCapture(stream, &drawn), "the graph of an update");
  const cudaError_t made = cudaGraphInstantiate(&graph_, drawn, 0);
  cudaGraphDestroy(drawn);
  check(made, "the graph of an update");
}
void Graph::run(cudaStream_t stream) const { check(cudaGraphLaunch(graph_, stream), "an update"); }

}  // namespace gipo::cuda
