#include "gipo/learner/cuda/measure.h"

#include <algorithm>
#include <vector>

#include "gipo/learner/cuda/inference.h"
#include "gipo/learner/cuda/loss.h"
#include "gipo/learner/cuda/memory.h"
#include "gipo/learner/cuda_learner.h"
#include "gipo/objective/surrogate.h"
#include "gipo/policy/mlp_policy.h"

namespace gipo {
namespace cuda {

double median_seconds(cudaStream_t stream, int times, const std::function<void()>& put) {
  constexpr int kRounds = 31;
  cudaEvent_t begin = nullptr, end = nullptr;
  check(cudaEventCreate(&begin), "an event");
  check(cudaEventCreate(&end), "an event");
  std::vector<float> milliseconds;
  for (int round = 0; round < kRounds; ++round) {
    check(cudaEventRecord(begin, stream), "an event");
    for (int i = 0; i < times; ++i) put();
    check(cudaEventRecord(end, stream), "an event");
    check(cudaEventSynchronize(end), "a measurement");
    milliseconds.emplace_back();
    check(cudaEventElapsedTime(&milliseconds.back(), begin, end), "an event");
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  std::ranges::nth_element(milliseconds, milliseconds.begin() + kRounds / 2);
  return 1e-3 * static_cast<double>(milliseconds[kRounds / 2]) / times;
}

}  // namespace cuda

SurrogateSeconds card_surrogate(const SurrogateOptions& options, std::size_t samples) {
  const cuda::CardArray<float> log_ratio(samples), advantage(samples), multiplier(samples);
  // Numbers like those of a run, again and again: what they are does not change the time, but zeros would.
  std::vector<float> some(1 << 20);
  RandomStream random(1);
  for (const cuda::CardArray<float>* array : {&log_ratio, &advantage}) {
    for (float& v : some) v = static_cast<float>(random.normal());
    for (std::size_t at = 0; at < samples; at += some.size()) {
      cuda::check(cudaMemcpy(array->data() + at, some.data(), std::min(some.size(), samples - at) * sizeof(float),
                             cudaMemcpyHostToDevice),
                  "a copy");
    }
  }
  const Surrogate surrogate(options);
  const cuda::Stream stream;
  SurrogateSeconds seconds;
  seconds.surrogate = cuda::median_seconds(stream, 5, [&] {
    cuda::surrogate_over(surrogate.choice(), log_ratio.data(), advantage.data(), multiplier.data(), samples, stream);
  });
  seconds.copy = cuda::median_seconds(stream, 5, [&] {
    cuda::check(
        cudaMemcpyAsync(multiplier.data(), log_ratio.data(), samples * sizeof(float), cudaMemcpyDeviceToDevice, stream),
        "a copy");
  });
  return seconds;
}

double card_inference(const ModelSpec& model, const Weights& weights, std::span<const float> seen, ProductKind kind,
                      std::span<float> found) {
  const MlpShape shape = mlp_shapes(model).policy;
  const std::size_t rows = seen.size() / shape.input;
  const cuda::CardArray<float> parameters(weights.policy.size()), observations(seen.size()), outputs(found.size());
  const auto copy = [](void* to, const void* from, std::size_t floats, cudaMemcpyKind direction) {
    cuda::check(cudaMemcpy(to, from, floats * sizeof(float), direction), "a copy");
  };
  copy(parameters.data(), weights.policy.data(), weights.policy.size(), cudaMemcpyHostToDevice);
  copy(observations.data(), seen.data(), seen.size(), cudaMemcpyHostToDevice);
  const auto n = static_cast<int>(rows);
  const cuda::Inference all{cuda::small_network(shape, cuda::inference_rows_per_block(n)), parameters.data(),
                            observations.data(), outputs.data(), n};
  cuda::prepare_inference(all.network, kind);
  const cuda::Stream stream;
  const double seconds = cuda::median_seconds(stream, 100, [&] { cuda::run_inference(all, kind, stream); });
  copy(found.data(), outputs.data(), found.size(), cudaMemcpyDeviceToHost);
  return seconds;
}

std::string card_name() {
  cudaDeviceProp properties{};
  cuda::check(cudaGetDeviceProperties(&properties, 0), "the card");
  return properties.name;
}

}  // namespace gipo
