// The state of the CPU's learner: as named tensors, and the small rest. docs/checkpoints.md describes both.
#include <algorithm>

#include "gipo/core/error.h"
#include "gipo/io/bytes.h"
#include "gipo/learner/cpu_learner.h"
#include "gipo/learner/rank_leader.h"
#include "gipo/policy/own_parameters.h"

namespace gipo {
namespace {

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
  for (const Part which : {Part::kPolicy, Part::kCritic}) {
    Trained& part = trained(which);
    add(part.tensors, "", part.parameters);
    if (ranks_) {
      add_moments(which, all);
      continue;
    }
    add(part.tensors, ".first_moment", part.optimizer.first_moment());
    add(part.tensors, ".second_moment", part.optimizer.second_moment());
  }
  if (!average_.empty()) add(policy_.tensors, ".average", average_);
  if (own_) {
    const std::size_t size = own_->state_bytes();
    all.push_back({{"own",
                    TensorType::kU8,
                    {size},
                    [this](ByteWriter& out) { own_->save([&](std::string_view piece) { out.append(piece); }); }},
                   [this, size](TensorReader& file) {
                     if (file.entry().shape != Shape{size}) throw Error("saved learner: its model is of another size");
                     own_->load([&](char* to, std::size_t n) { file.read_bytes({to, n}); });
                   },
                   true});
  }
  const Shape dims = {book_.scale.mean.size()};
  all.push_back(in_place<float>("observation.mean", dims, book_.scale.mean));
  all.push_back(in_place<float>("observation.inverse_std", dims, book_.scale.inverse_std));
  return all;
}

// Of those that ranks have, one tensor at a time is here.
template <class T>
void CpuLearner<T>::add_moments(Part part, std::vector<LearnerTensor>& all) {
  using Moment = RankLeader::Moment;
  for (const auto& [moment, end] : {std::pair(Moment::kFirst, ".first_moment"), {Moment::kSecond, ".second_moment"}}) {
    for (const TensorSlice& s : trained(part).tensors) {
      const auto write = [this, part, moment = moment, s](ByteWriter& out) {
        std::vector<float> values(s.values());
        ranks_->read_moments(part, moment, s.offset, values);
        out.append(std::as_bytes(std::span<const float>(values)));
      };
      const auto read = [this, part, moment = moment, s](TensorReader& file) {
        std::vector<float> values(s.values());
        file.read_floats<float>(shape_of(s), values);
        ranks_->write_moments(part, moment, s.offset, values);
      };
      all.push_back({{s.name + end, TensorType::kF32, shape_of(s), write}, read});
    }
  }
}

template <class T>
std::shared_ptr<void> CpuLearner<T>::hold() {
  return own_ ? own_->hold() : nullptr;
}

template <class T>
void CpuLearner<T>::save_rest(ByteWriter& out) const {
  book_.save(out, policy_.optimizer.steps(), critic_.optimizer.steps());
}

template <class T>
void CpuLearner<T>::load_rest(ByteReader& in) {
  std::int64_t policy_steps = 0, critic_steps = 0;
  book_.load(in, policy_steps, critic_steps);
  policy_.optimizer.set_steps(policy_steps);
  critic_.optimizer.set_steps(critic_steps);
  if (ranks_) ranks_->parameters_changed();
}

template <class T>
std::vector<std::pair<std::string, std::vector<double>>> CpuLearner<T>::gradients() const {
  std::vector<std::pair<std::string, std::vector<double>>> all;
  const auto add = [&](Part which) {
    const Trained& part = trained(which);
    std::vector<T> gradient(part.gradient.begin(), part.gradient.end());
    if (ranks_) std::ranges::copy(ranks_->gradient(which), gradient.begin());
    for (const TensorSlice& s : part.tensors) {
      const auto values = std::span<const T>(gradient).subspan(s.offset, s.values());
      all.emplace_back(s.name, std::vector<double>(values.begin(), values.end()));
    }
  };
  if (policy_due_) add(Part::kPolicy);
  add(Part::kCritic);
  return all;
}

#define GIPO_INSTANTIATE(T)                                                             \
  template std::vector<LearnerTensor> CpuLearner<T>::tensors();                         \
  template void CpuLearner<T>::add_moments(Part part, std::vector<LearnerTensor>& all); \
  template std::shared_ptr<void> CpuLearner<T>::hold();                                 \
  template void CpuLearner<T>::save_rest(ByteWriter& out) const;                        \
  template void CpuLearner<T>::load_rest(ByteReader& in);                               \
  template std::vector<std::pair<std::string, std::vector<double>>> CpuLearner<T>::gradients() const;
GIPO_INSTANTIATE(float)
GIPO_INSTANTIATE(double)
#undef GIPO_INSTANTIATE

}  // namespace gipo
