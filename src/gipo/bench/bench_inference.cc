#include <fmt/format.h>

#include "gipo/bench/bench.h"
#include "gipo/bench/made_up.h"

namespace gipo {

// From observations to the outputs of the policy, as an actor asks for them: scaled, through the network.
std::vector<BenchRow> bench_inference() {
  std::vector<BenchRow> rows;
  for (const std::int64_t width : {64, 256}) {
    for (const std::size_t count : {1u, 16u}) {
      const ModelSpec model = made_up_setup(8, ActionSpace::discrete(2), {width, width}, 64).model;
      const Weights weights = initial_weights(model, RandomStream(1));
      const std::vector<float> observations(count * 8, 0.3f);
      Inference inference(model, count);
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
