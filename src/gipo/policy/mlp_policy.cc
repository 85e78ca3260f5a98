#include "gipo/policy/mlp_policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "gipo/core/error.h"
#include "gipo/core/random.h"
#include "gipo/policy/onnx_graph.h"

namespace gipo {
namespace {

constexpr double kPolicyGain = 0.01, kCriticGain = 1;  // of the first weights at the output

// The columns [begin, begin + width) of rows [rows, from_width], to rows `stride` apart.
template <class T>
void copy_columns(const T* from, std::size_t from_width, std::size_t begin, std::size_t width, std::size_t rows, T* to,
                  std::size_t stride) {
  for (std::size_t r = 0; r < rows; ++r) std::copy_n(from + r * from_width + begin, width, to + r * stride);
}

// The policy sees the rows after the end of a stretch only where the critic reads its layers.
std::size_t policy_rows(const MlpShapes& shapes, const PolicyRoom& room) {
  return room.learned > 0 && shapes.shared == 0 ? room.learned : room.rows;
}
std::size_t critic_rows(const PolicyRoom& room) { return room.critic ? room.rows : 0; }

bool is_new(std::int64_t& seen, std::int64_t now) { return now < 0 || std::exchange(seen, now) != now; }

}  // namespace

MlpShapes mlp_shapes(const ModelSpec& spec) {
  const PolicyOptions& o = spec.options;
  GIPO_CHECK(o.shared >= 0 && static_cast<std::size_t>(o.shared) <= o.hidden.size());
  MlpShapes shapes;
  shapes.shared = static_cast<std::size_t>(o.shared);
  const std::size_t read = spec.observation_size - spec.privileged;
  shapes.policy = {read, o.hidden, spec.distribution.outputs(), o.activation, o.layer_norm};
  const std::size_t seen = shapes.shared > 0 ? static_cast<std::size_t>(o.hidden[shapes.shared - 1]) : read;
  const Widths own(o.hidden.begin() + o.shared, o.hidden.end());
  shapes.critic = {seen + spec.privileged, o.critic_hidden.value_or(own), 1, o.activation, o.layer_norm};
  return shapes;
}

template <class T>
MlpPolicy<T>::MlpPolicy(const ModelSpec& spec, const PolicyRoom& room)
    : spec_(spec),
      shapes_(mlp_shapes(spec)),
      room_(room),
      policy_(shapes_.policy, policy_rows(shapes_, room)),
      critic_(shapes_.critic, critic_rows(room)),
      pi_(spec.distribution, room.learned),
      plain_(is_plain(spec.fields)),
      mask_field_(mask_field(spec.fields)) {}

template <class T>
std::vector<TensorSlice> MlpPolicy<T>::tensors(Part part) const {
  const Mlp<T>& mlp = part == Part::kPolicy ? policy_ : critic_;
  std::vector<TensorSlice> slices = mlp.slices();
  for (TensorSlice& s : slices) s.name = (part == Part::kPolicy ? "policy." : "critic.") + s.name;
  const std::size_t extra = part == Part::kPolicy ? spec_.distribution.extra_parameters() : 0;
  if (extra > 0) slices.push_back({"policy.log_std", mlp.parameter_count(), {static_cast<std::int64_t>(extra)}});
  return slices;
}

template <class T>
void MlpPolicy<T>::initialise(Part part, std::span<T> parameters, RandomStream& random) const {
  const Mlp<T>& mlp = part == Part::kPolicy ? policy_ : critic_;
  const std::size_t network = mlp.parameter_count();
  if (spec_.options.init == FirstWeights::kUniform) {
    mlp.initialise_uniform(parameters.first(network), random);
  } else {
    mlp.initialise(parameters.first(network), random, part == Part::kPolicy ? kPolicyGain : kCriticGain);
  }
  std::ranges::fill(parameters.subspan(network), T(spec_.options.init_log_std));
}

template <class T>
void MlpPolicy<T>::constrain(std::span<T> policy) const {
  for (T& v : policy.subspan(policy_.parameter_count())) v = std::clamp(v, T(kMinLogStd), T(kMaxLogStd));
}

template <class T>
void MlpPolicy<T>::see(const PolicyParameters<T>& parameters, const PolicyInput& input) {
  GIPO_CHECK(input.columns.size() == spec_.fields.size() && input.rows <= room_.rows);
  parameters_ = parameters;
  rows_ = input.rows;
  mask_ = spec_.distribution.masked ? reinterpret_cast<const std::uint8_t*>(input.columns[mask_field_]) : nullptr;
  const float* floats = reinterpret_cast<const float*>(input.columns[0]);
  if (!plain_) {
    encoded_.resize(room_.rows * spec_.observation_size);
    encode(spec_.fields, input.columns, rows_, encoded_.data());
    floats = encoded_.data();
  }
  observation_.resize(room_.rows * spec_.observation_size);
  parameters.scale->template apply<T>({floats, rows_ * spec_.observation_size}, observation_.data());
  scaled_ = policy_input_ = observation_.data();
  if (spec_.privileged > 0) {
    const std::size_t read = shapes_.policy.input;
    policy_columns_.resize(room_.rows * read);
    copy_columns(scaled_, spec_.observation_size, 0, read, rows_, policy_columns_.data(), read);
    policy_input_ = policy_columns_.data();
  }
  see_scaled();
}

template <class T>
void MlpPolicy<T>::see_as(const PolicyParameters<T>& parameters, const Policy<T>& other) {
  const auto& twin = static_cast<const MlpPolicy<T>&>(other);
  parameters_ = parameters;
  rows_ = std::min(twin.rows_, room_.rows);
  mask_ = twin.mask_;
  scaled_ = twin.scaled_;
  policy_input_ = twin.policy_input_;
  see_scaled();
}

// What both networks begin with: the output of the shared layers, or the observations.
template <class T>
void MlpPolicy<T>::see_scaled() {
  features_ = policy_input_;
  if (shapes_.shared == 0) return;
  features_ = policy_.forward_layers(0, shapes_.shared, network(), policy_input_, rows_,
                                     is_new(shared_version_, parameters_.policy_version));
}

template <class T>
void MlpPolicy<T>::forward(std::size_t rows) {
  GIPO_CHECK(rows <= rows_);
  evaluated_ = rows;
  view_ = {policy_.forward_layers(shapes_.shared, policy_.layers(), network(), features_, rows,
                                  is_new(policy_version_, parameters_.policy_version)),
           parameters_.policy.subspan(policy_.parameter_count())};
  if (room_.learned > 0) pi_.evaluate(view_, rows, mask_);
}

template <class T>
void MlpPolicy<T>::choose(std::span<const ActionRow> rows) {
  GIPO_CHECK(rows.size() == evaluated_);
  choose_actions<T>(spec_.distribution, view_, rows, mask_);
}

template <class T>
void MlpPolicy<T>::kl_divergence(const Policy<T>& other, T* out) const {
  pi_.kl_divergence(static_cast<const MlpPolicy<T>&>(other).pi_, out);
}

template <class T>
void MlpPolicy<T>::policy_gradient(const T* actions, const PolicyLoss<T>& loss, std::span<T> gradient) {
  d_outputs_.resize(room_.learned * shapes_.policy.output);
  DistributionLoss<T> of_outputs{loss.d_log_prob, loss.entropy_coef, loss.kl_coef, nullptr};
  if (loss.other) of_outputs.other = &static_cast<const MlpPolicy<T>*>(loss.other)->pi_;
  const std::size_t n = policy_.parameter_count();
  pi_.gradient(actions, of_outputs, d_outputs_.data(), gradient.subspan(n));
  policy_.backward(network(), policy_input_, evaluated_, d_outputs_.data(), gradient.first(n));
}

template <class T>
const T* MlpPolicy<T>::values() {
  critic_input_ = features_;
  if (spec_.privileged > 0) {
    const std::size_t stride = shapes_.critic.input, seen = stride - spec_.privileged;
    critic_columns_.resize(room_.rows * stride);
    copy_columns(features_, seen, 0, seen, rows_, critic_columns_.data(), stride);
    copy_columns(scaled_, spec_.observation_size, shapes_.policy.input, spec_.privileged, rows_,
                 critic_columns_.data() + seen, stride);
    critic_input_ = critic_columns_.data();
  }
  return critic_.forward(parameters_.critic, critic_input_, rows_, is_new(critic_version_, parameters_.critic_version));
}

// No gradient by its input: what the critic reads of the policy's layers stays the policy's.
template <class T>
void MlpPolicy<T>::value_gradient(const T* d_values, std::size_t rows, std::span<T> gradient) {
  critic_.backward(parameters_.critic, critic_input_, rows, d_values, gradient);
}

template <class T>
void MlpPolicy<T>::add_to(OnnxGraph& graph, std::span<const float> policy, const OnnxObservation& observation,
                          const std::string& output) const {
  std::string x = observation.floats;
  const std::vector<TensorSlice> slices = tensors(Part::kPolicy);
  const auto tensor = [&](std::size_t layer, const char* name) {
    const auto it = std::ranges::find(slices, fmt::format("policy.{}.{}", layer, name), &TensorSlice::name);
    GIPO_CHECK(it != slices.end());
    return graph.constant<float>(it->name, it->shape, policy.subspan(it->offset, it->values()));
  };
  const std::size_t layers = shapes_.policy.hidden.size();
  const char* activation = shapes_.policy.activation == Activation::kTanh ? "Tanh" : "Relu";
  for (std::size_t i = 0; i <= layers; ++i) {
    const std::vector<std::string> inputs = {x, tensor(i, "weight"), tensor(i, "bias")};
    if (i == layers) {
      graph.node("Gemm", inputs, {onnx_whole("transB", 1)}, {output});
      return;
    }
    x = graph.node(activation, {graph.node("Gemm", inputs, {onnx_whole("transB", 1)})});
    if (!shapes_.policy.layer_norm) continue;
    x = graph.node("LayerNormalization", {x, tensor(i, "norm.weight"), tensor(i, "norm.bias")},
                   {onnx_whole("axis", -1), onnx_real("epsilon", kNormEpsilon)});
  }
}

// With what the first calls make.
PolicyMemory mlp_policy_memory(const ModelSpec& spec, const PolicyRoom& room) {
  const MlpShapes shapes = mlp_shapes(spec);
  const auto rows = static_cast<double>(room.rows), learned = static_cast<double>(room.learned);
  double floats = rows * static_cast<double>(spec.observation_size) * (is_plain(spec.fields) ? 1 : 2);
  if (spec.privileged > 0) {
    floats +=
        rows * static_cast<double>(shapes.policy.input) + static_cast<double>(critic_rows(room) * shapes.critic.input);
  }
  floats += 3 * learned * static_cast<double>(shapes.policy.output);
  PolicyMemory memory;
  memory.held = 4 * floats + Mlp<float>::bytes_needed(shapes.policy, policy_rows(shapes, room)) +
                Mlp<float>::bytes_needed(shapes.critic, critic_rows(room));
  if (spec.options.init == FirstWeights::kUniform) return memory;
  // An orthogonal matrix is made in double precision from three more of its size.
  for (const MlpShape& shape : {shapes.policy, shapes.critic}) {
    auto in = static_cast<double>(shape.input);
    for (std::size_t i = 0; i <= shape.hidden.size(); ++i) {
      const auto out =
          static_cast<double>(i < shape.hidden.size() ? static_cast<std::size_t>(shape.hidden[i]) : shape.output);
      memory.at_first = std::max(memory.at_first, 4 * sizeof(double) * in * out);
      in = out;
    }
  }
  return memory;
}

template class MlpPolicy<float>;
template class MlpPolicy<double>;

}  // namespace gipo
