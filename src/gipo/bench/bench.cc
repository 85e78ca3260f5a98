#include "gipo/bench/bench.h"

#include <algorithm>
#include <limits>

#include "gipo/bench/clock.h"
#include "gipo/core/aligned_vector.h"
#include "gipo/kernels/dense.h"

namespace gipo {
namespace {

constexpr double kTotalSeconds = 2, kSliceSeconds = 0.004;

double seconds_of(const std::function<void()>& call, std::int64_t times) {
  const double begin = steady_time();
  for (std::int64_t i = 0; i < times; ++i) call();
  return steady_time() - begin;
}

// How often it must be called to fill a slice; also warms it up.
std::int64_t times_per_slice(const std::function<void()>& call) {
  const double once = std::min(seconds_of(call, 1), seconds_of(call, 3) / 3);
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(kSliceSeconds / std::max(once, 1e-9)));
}

}  // namespace

std::pair<double, double> best_seconds(const std::function<void()>& one, const std::function<void()>& other) {
  const std::int64_t times[2] = {times_per_slice(one), times_per_slice(other)};
  double best[2] = {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity()}, total = 0;
  for (int round = 0; round < 5 || total < 2 * kTotalSeconds; ++round) {
    for (int i = 0; i < 2; ++i) {
      const std::function<void()>& call = i == 0 ? one : other;
      call();  // the other one's data may be all that is left in the caches
      const double seconds = seconds_of(call, times[i]);
      best[i] = std::min(best[i], seconds / static_cast<double>(times[i]));
      total += seconds;
    }
  }
  return {best[0], best[1]};
}

double best_seconds(const std::function<void()>& call) {
  return best_seconds(call, [] {}).first;
}

std::pair<double, double> best_beside_sgemm(const std::function<void()>& call) {
  constexpr std::size_t kOrder = 2048;
  constexpr double kOperations = 2.0 * kOrder * kOrder * kOrder;
  static std::vector<AlignedVector<float>> m(3, AlignedVector<float>(kOrder * kOrder, 0.5f));
  static double best_product = std::numeric_limits<double>::infinity();
  const auto [seconds, product] =
      best_seconds(call, [] { dense_kernels<float>().eigen_product(m[0].data(), m[1].data(), m[2].data(), kOrder); });
  best_product = std::min(best_product, product);
  return {seconds, kOperations / best_product};
}

const std::vector<Bench>& benches() {
  static const std::vector<Bench> all = {
      {"learner", "updates of the networks", bench_learner},
      {"inference", "actions from observations", bench_inference},
      {"replay", "transitions in and out", bench_replay},
      {"env", "environments stepped", bench_env},
      {"train", "whole runs", bench_train},
      {"scaling", "what grows with batch, width, environments and capacity", bench_scaling},
      {"images", "updates of networks that read images, with libtorch", bench_images},
      {"cuda", "updates, surrogates and inference on an NVIDIA card; measured where it is named", bench_cuda, true},
      {"population", "whole runs on an NVIDIA card, up to 4,096 at once; measured where it is named", bench_population,
       true},
      {"vla", "updates and inference of the large model, random weights; measured where it is named", bench_vla, true},
  };
  return all;
}

}  // namespace gipo
