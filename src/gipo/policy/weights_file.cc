// Weights as a safetensors file and back: tensors in torch's layout, so that other programs can read them.
#include <fmt/format.h>

#include "gipo/core/error.h"
#include "gipo/core/safetensors.h"
#include "gipo/policy/model.h"

namespace gipo {
namespace {

Shape to_shape(const std::vector<std::int64_t>& shape) { return Shape(shape.begin(), shape.end()); }

std::size_t elements(const TensorSlice& slice) {
  std::size_t n = 1;
  for (const std::int64_t d : slice.shape) n *= static_cast<std::size_t>(d);
  return n;
}

// Every tensor of the policy (then of the critic) with its place in the flat buffer.
std::vector<TensorSlice> policy_slices(const ModelSpec& spec) {
  const Mlp<float> mlp(spec.policy_shape, 0);
  std::vector<TensorSlice> slices = mlp.slices();
  for (TensorSlice& s : slices) s.name = "policy." + s.name;
  if (const std::size_t extra = spec.distribution.extra_parameters(); extra > 0) {
    slices.push_back({"policy.log_std", mlp.parameter_count(), {static_cast<std::int64_t>(extra)}});
  }
  return slices;
}

std::vector<TensorSlice> critic_slices(const ModelSpec& spec) {
  std::vector<TensorSlice> slices = Mlp<float>(spec.critic_shape, 0).slices();
  for (TensorSlice& s : slices) s.name = "critic." + s.name;
  return slices;
}

void add_views(const std::vector<TensorSlice>& slices, std::span<const float> flat, std::vector<TensorView>& views) {
  for (const TensorSlice& s : slices) {
    views.push_back(view_tensor<float>(s.name, to_shape(s.shape), flat.subspan(s.offset, elements(s))));
  }
}

void read_all(const SafeTensors& file, const std::vector<TensorSlice>& slices, std::span<float> flat) {
  for (const TensorSlice& s : slices) file.read<float>(s.name, to_shape(s.shape), flat.subspan(s.offset, elements(s)));
}

std::string in_words(const DistributionSpec& spec) {
  return spec.kind == DistributionKind::kGaussian ? "gaussian"
                                                  : fmt::format("categorical {}", fmt::join(spec.choices, ","));
}

}  // namespace

std::string weights_to_safetensors(const ModelSpec& spec, const Weights& weights, const std::string& env_id) {
  std::vector<TensorView> views;
  add_views(policy_slices(spec), weights.policy, views);
  add_views(critic_slices(spec), weights.critic, views);
  const Shape dims = {spec.observation_size}, one = {1};
  views.push_back(view_tensor<float>("observation.mean", dims, weights.scale.mean));
  views.push_back(view_tensor<float>("observation.inverse_std", dims, weights.scale.inverse_std));
  views.push_back(view_tensor<float>("observation.limit", one, {&weights.scale.limit, 1}));
  return write_safetensors(views,
                           {{"format", "gipo-policy-1"},
                            {"env", env_id},
                            {"version", std::to_string(weights.version)},
                            {"distribution", in_words(spec.distribution)},
                            {"shared", std::to_string(spec.shared)},
                            {"activation", spec.policy_shape.activation == Activation::kTanh ? "tanh" : "relu"}});
}

Weights weights_from_safetensors(const ModelSpec& spec, const std::string& bytes, const std::string& where) {
  const SafeTensors file(bytes, where);
  Weights weights;
  weights.policy.resize(spec.policy_parameters());
  weights.critic.resize(spec.critic_parameters());
  weights.scale = ObservationScale::identity(spec.observation_size);
  read_all(file, policy_slices(spec), weights.policy);
  read_all(file, critic_slices(spec), weights.critic);
  const Shape dims = {spec.observation_size}, one = {1};
  file.read<float>("observation.mean", dims, weights.scale.mean);
  file.read<float>("observation.inverse_std", dims, weights.scale.inverse_std);
  file.read<float>("observation.limit", one, {&weights.scale.limit, 1});
  if (!(weights.scale.limit > 0)) throw Error(where + ": observation.limit is not above zero");
  const auto version = file.metadata().find("version");
  if (version == file.metadata().end()) throw Error(where + ": no version among its metadata");
  weights.version = std::strtoll(version->second.c_str(), nullptr, 10);
  return weights;
}

}  // namespace gipo
