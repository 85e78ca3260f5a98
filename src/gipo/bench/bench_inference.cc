#include <fmt/format.h>

#include "gipo/bench/bench.h"
#include "gipo/bench/made_up.h"

namespace gipo {

namespace {

BenchRow measure(const std::string& name, std::int64_t width, std::size_t count) {
  const ModelSpec model = made_up_setup(8, ActionSpace::discrete(2), {width, width}, 64).model;
  const Weights weights = initial_weights(model, RandomStream(1));
  const std::vector<float> observations(count * 8, 0.3f);
  const auto policy = make_policy<float>(model, {count});
  const auto* column = reinterpret_cast<const std::byte*>(observations.data());
  const auto [seconds, sgemm] = best_beside_sgemm([&] {
    policy->see(parameters_of(weights), {{&column, 1}, count});
    policy->forward(count);
  });
  const double work =
      2.0 * static_cast<double>(count) * static_cast<double>(width) * static_cast<double>(8 + width + 2);
  return {name, 1e6 * seconds, "us", "sgemm 2048^3", work / seconds / sgemm};
}

}  // namespace

// From observations to the outputs of the policy, as an actor asks for them: scaled, through the network.
std::vector<BenchCase> bench_inference() {
  std::vector<BenchCase> cases;
  for (const std::int64_t width : {64, 256}) {
    for (const std::size_t count : {1u, 16u}) {
      const std::string name = fmt::format("inference {0}x{0} rows {1}", width, count);
      cases.push_back({name, [=] { return std::vector{measure(name, width, count)}; }});
    }
  }
  return cases;
}

}  // namespace gipo
