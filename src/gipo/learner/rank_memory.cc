#include "gipo/learner/rank_memory.h"

#include <algorithm>
#include <deque>

#include "gipo/core/aligned_vector.h"
#include "gipo/kernels/dense.h"

namespace gipo {
namespace {

class HostMemory final : public RankMemory {
 public:
  std::span<float> make(std::size_t size) override { return arrays_.emplace_back(size); }
  void read(std::span<const float> there, std::span<float> here) override { std::ranges::copy(there, here.begin()); }
  void write(std::span<const float> here, std::span<float> there) override { std::ranges::copy(here, there.begin()); }
  void clear(std::span<float> there) override { std::ranges::fill(there, 0.0F); }
  double sum_of_squares(std::span<const float> there) override {
    return dense_kernels<float>().sum_of_squares(there.data(), there.size());
  }
  void adamw(const AdamWStep<float>& step, std::span<const float> gradient, std::span<float> parameters,
             std::span<float> first, std::span<float> second) override {
    dense_kernels<float>().adamw(step, gradient.data(), parameters.data(), first.data(), second.data(),
                                 gradient.size());
  }
  void move_average(std::span<float> average, std::span<const float> parameters, float towards) override {
    for (std::size_t k = 0; k < average.size(); ++k) {
      average[k] = (1.0F - towards) * average[k] + towards * parameters[k];
    }
  }

 private:
  std::deque<AlignedVector<float>> arrays_;
};

}  // namespace

std::unique_ptr<RankMemory> make_host_memory() { return std::make_unique<HostMemory>(); }

}  // namespace gipo
