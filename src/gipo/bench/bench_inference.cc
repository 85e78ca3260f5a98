#include <fmt/format.h>

#include "gipo/bench/bench.h"
#include "gipo/bench/made_up.h"
#include "gipo/core/thread_pool.h"

namespace gipo {

// From observations to the outputs of the policy, as an actor asks for them: scaled, through the network.
std::vector<BenchRow> bench_inference() {
  std::vector<BenchRow> rows;
  for (const std::int64_t width : {64, 256}) {
    for (const std::size_t count : {1u, 16u}) {
      const LearnerSetup setup = made_up_setup(8, ActionSpace::discrete(2), {width, width}, 64);
      ThreadPool pool(1);
      Weights weights;
      make_learner(setup, RandomStream(1), pool)->copy_weights(weights);
      const std::vector<float> observations(count * 8, 0.3f);
      Inference inference(setup.model, count);
      const auto [seconds, sgemm] = best_beside_sgemm([&] { inference.policy(weights, observations); });
      const double work =
          2.0 * static_cast<double>(count) * static_cast<double>(width) * static_cast<double>(8 + width + 2);
      rows.push_back({fmt::format("inference {0}x{0} rows {1}", width, count), 1e6 * seconds, "us", "sgemm 2048^3",
                      work / seconds / sgemm});
    }
  }
  return rows;
}

}  // namespace gipo
