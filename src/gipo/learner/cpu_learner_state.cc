// The state of the CPU's learner: as named tensors, and the small rest. docs/checkpoints.md describes both.
#include "gipo/core/error.h"
#include "gipo/io/bytes.h"
#include "gipo/learner/cpu_learner.h"

namespace gipo {
namespace {

constexpr std::int64_t kMostUpdates = std::int64_t{1} << 62;  // far beyond any run; below it no count overflows

Shape shape_of(const TensorSlice& slice) { return Shape(slice.shape.begin(), slice.shape.end()); }

template <class T>
LearnerTensor in_place(const std::string& name, const Shape& shape, std::span<T> values) {
  return {source_of(view_tensor<T>(name, shape, values)),
          [=](TensorReader& file) { file.read_floats<T>(shape, values); }};
}

}  // namespace

template <class T>
std::vector<LearnerTensor> CpuLearner<T>::tensors() {
  std::vector<LearnerTensor> all;
  const auto add = [&](const std::vector<TensorSlice>& slices, const std::string& end, std::span<T> values) {
    for (const TensorSlice& s : slices) {
      all.push_back(in_place<T>(s.name + end, shape_of(s), values.subspan(s.offset, s.values())));
    }
  };
  for (Trained* part : {&policy_, &critic_}) {
    add(part->tensors, "", part->parameters);
    add(part->tensors, ".first_moment", part->optimizer.first_moment());
    add(part->tensors, ".second_moment", part->optimizer.second_moment());
  }
  if (!average_.empty()) add(policy_.tensors, ".average", average_);
  const Shape dims = {scale_.mean.size()};
  all.push_back(in_place<float>("observation.mean", dims, scale_.mean));
  all.push_back(in_place<float>("observation.inverse_std", dims, scale_.inverse_std));
  return all;
}

template <class T>
void CpuLearner<T>::save_rest(ByteWriter& out) const {
  out.value(version_);
  out.value(skipped_);
  out.value(skipped_in_a_row_);
  out.value(policy_.optimizer.steps());
  out.value(critic_.optimizer.steps());
  out.value(scale_.limit);
  returns_.save(out);
  out.array(gap_pool_);
  out.value<std::uint64_t>(gap_pool_at_);
}

template <class T>
void CpuLearner<T>::load_rest(ByteReader& in) {
  version_ = policy_version_ = in.value<std::int64_t>();
  skipped_ = in.value<std::int64_t>();
  skipped_in_a_row_ = in.value<std::int64_t>();
  policy_.optimizer.set_steps(in.value<std::int64_t>());
  critic_.optimizer.set_steps(in.value<std::int64_t>());
  scale_.limit = in.value<float>();
  returns_.load(in);
  reward_scale_ = RewardScale(returns_);
  const auto count = [&](std::int64_t v) { return v >= 0 && v <= version_; };
  if (version_ < 0 || version_ > kMostUpdates || !count(skipped_) || !count(skipped_in_a_row_)) {
    throw Error("saved learner: its counts of updates are damaged");
  }
  if (!(scale_.limit > 0)) throw Error("saved learner: the limit of observations is not above zero");
  gap_pool_ = in.array<std::int64_t>();
  gap_pool_at_ = in.value<std::uint64_t>();
  if (gap_pool_at_ >= std::max<std::size_t>(1, gap_pool_.size()))
    throw Error("saved learner: the pool of gaps is damaged");
}

template <class T>
std::vector<std::pair<std::string, std::vector<double>>> CpuLearner<T>::gradients() const {
  std::vector<std::pair<std::string, std::vector<double>>> all;
  const auto add = [&](const Trained& part) {
    for (const TensorSlice& s : part.tensors) {
      const auto values = std::span<const T>(part.gradient).subspan(s.offset, s.values());
      all.emplace_back(s.name, std::vector<double>(values.begin(), values.end()));
    }
  };
  if (policy_due_) add(policy_);
  add(critic_);
  return all;
}

#define GIPO_INSTANTIATE(T)                                      \
  template std::vector<LearnerTensor> CpuLearner<T>::tensors();  \
  template void CpuLearner<T>::save_rest(ByteWriter& out) const; \
  template void CpuLearner<T>::load_rest(ByteReader& in);        \
  template std::vector<std::pair<std::string, std::vector<double>>> CpuLearner<T>::gradients() const;
GIPO_INSTANTIATE(float)
GIPO_INSTANTIATE(double)
#undef GIPO_INSTANTIATE

}  // namespace gipo
