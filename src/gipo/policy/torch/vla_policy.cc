#include "gipo/policy/torch/vla_policy.h"

#include <algorithm>
#include <cmath>

#include "gipo/core/error.h"
#include "gipo/core/random.h"
#include "gipo/policy/torch/torch_nets.h"
#include "gipo/policy/torch/vla_nets.h"
#include "gipo/policy/vla_spec.h"

namespace gipo {
namespace {

using at::Tensor;

constexpr double kVectorDeviation = 0.1, kHeadDeviation = 0.02;  // of first tokens and positions; of the action head

class VlaPolicy final : public Policy<float> {
 public:
  VlaPolicy(const ModelSpec& spec, const PolicyRoom& room)
      : spec_(spec),
        room_(room),
        device_(room.device),
        config_(vla_config_of(spec)),
        // Who has no critic is asked for log-probs alone.
        nets_(spec, room.critic ? static_cast<std::int64_t>(room.learned) : 0, device_),
        pi_(spec.distribution, room.learned) {}

  std::vector<TensorSlice> tensors(Part part) const override { return vla_slices(config_, part); }

  // Of matrices: so that numbers keep their size from layer to layer.
  void initialise(Part part, std::span<float> parameters, RandomStream& random) const override {
    auto out = parameters.begin();
    for (const VlaTensor& t : vla_tensors(config_)) {
      if (part_of(t) != part) continue;
      const auto end = out + static_cast<std::ptrdiff_t>(t.size());
      if (t.fill != VlaTensor::Fill::kNormal) {
        std::fill(out, end, t.fill == VlaTensor::Fill::kOne ? 1.0f : 0.0f);
      } else {
        const bool vectors =
            t.name.ends_with("embed") || t.name.ends_with("token") || t.name.ends_with("embed_tokens.weight");
        const double inputs = static_cast<double>(t.size()) / static_cast<double>(t.shape[0]);
        const double deviation = vectors                              ? kVectorDeviation
                                 : t.name.ends_with("lm_head.weight") ? kHeadDeviation
                                                                      : 1 / std::sqrt(inputs);
        std::generate(out, end, [&] { return static_cast<float>(random.normal() * deviation); });
      }
      out = end;
    }
  }

  void constrain(std::span<float>) const override {}

  void see(const PolicyParameters<float>& parameters, const PolicyInput& input) override {
    GIPO_CHECK(input.columns.size() == spec_.fields.size() && input.rows <= room_.rows);
    stay_on_this_thread();
    bind(parameters);
    if (spec_.observation_size > 0) {
      const std::size_t floats = input.rows * spec_.observation_size;
      encoded_.resize(std::max(floats, encoded_.size()));
      scaled_.resize(encoded_.size());
      encode(spec_.fields, input.columns, input.rows, encoded_.data());
      parameters.scale->apply<float>({encoded_.data(), floats}, scaled_.data());
    }
    on_device(device_, [&] {
      const c10::InferenceMode guard;
      VlaRows seen = vla_rows(spec_, input.columns, scaled_.data(), static_cast<std::int64_t>(input.rows), at::kCPU);
      seen.images = seen.images.to(device_);
      if (seen.proprio.defined()) seen.proprio = seen.proprio.to(device_);
      nets_.see(std::move(seen));
    });
  }

  void see_as(const PolicyParameters<float>& parameters, const Policy<float>& other) override {
    bind(parameters);
    VlaRows seen = static_cast<const VlaPolicy&>(other).nets_.seen();
    seen.rows = std::min(seen.rows, static_cast<std::int64_t>(room_.rows));
    on_device(device_, [&] { nets_.see(std::move(seen)); });
  }

  void forward(std::size_t rows) override {
    stay_on_this_thread();
    evaluated_ = rows;
    outputs_ = on_device(device_, [&] { return nets_.outputs(static_cast<std::int64_t>(rows)); }).cpu();
    view_ = {outputs_.const_data_ptr<float>(), {}};
    if (room_.learned > 0) pi_.evaluate(view_, rows, nullptr);
  }

  void choose(std::span<const ActionRow> rows) override {
    GIPO_CHECK(rows.size() == evaluated_);
    choose_actions(spec_.distribution, view_, rows, nullptr);
  }

  DistributionView<float> distribution() const override { return view_; }
  void log_prob(const float* actions, float* out) const override { pi_.log_prob(actions, out); }
  void entropy(float* out) const override { pi_.entropy(out); }
  void kl_divergence(const Policy<float>& other, float* out) const override {
    pi_.kl_divergence(static_cast<const VlaPolicy&>(other).pi_, out);
  }

  void policy_gradient(const float* actions, const PolicyLoss<float>& loss, std::span<float> gradient) override {
    stay_on_this_thread();
    d_outputs_.resize(room_.learned * spec_.distribution.outputs());
    DistributionLoss<float> of_outputs{loss.d_log_prob, loss.entropy_coef, loss.kl_coef, nullptr};
    if (loss.other) of_outputs.other = &static_cast<const VlaPolicy*>(loss.other)->pi_;
    pi_.gradient(actions, of_outputs, d_outputs_.data(), {});
    const Tensor by = at::from_blob(d_outputs_.data(), outputs_.sizes(), at::kFloat).to(device_);
    copy_to(on_device(device_, [&] { return nets_.policy_gradient(by); }), gradient);
  }

  const float* values() override {
    stay_on_this_thread();
    values_ = on_device(device_, [&] { return nets_.values(); }).cpu();
    return values_.const_data_ptr<float>();
  }

  void value_gradient(const float* d_values, std::size_t rows, std::span<float> gradient) override {
    stay_on_this_thread();
    const Tensor by =
        at::from_blob(const_cast<float*>(d_values), {static_cast<std::int64_t>(rows)}, at::kFloat).to(device_);
    copy_to(on_device(device_, [&] { return nets_.value_gradient(by); }), gradient);
  }

  void add_to(OnnxGraph&, std::span<const float>, const OnnxObservation&, const std::string&) const override {
    throw Error("policy.encoder: openvla_oft has no form in ONNX");
  }

 private:
  // Parameters and gradients where they lie.
  Tensor there(std::span<const float> values) const {
    return floats_at(values, room_.ranks ? device_ : at::Device(at::kCPU));
  }
  void copy_to(const Tensor& from, std::span<float> out) const {
    const c10::InferenceMode guard;
    there(out).copy_(from);
  }

  // On the host the network reads parameters where they lie; a card has a copy, unless that is of the same version.
  void bind(const PolicyParameters<float>& parameters) {
    const c10::InferenceMode guard;
    Tensor& policy = parameters_[0];
    Tensor& critic = parameters_[1];
    const bool cpu = device_.is_cpu();
    if (cpu && policy.defined() && policy.const_data_ptr() == parameters.policy.data() &&
        (!room_.critic || critic.const_data_ptr() == parameters.critic.data())) {
      return;
    }
    const auto copied = [&](Tensor& to, std::span<const float> from, std::int64_t version, std::int64_t& have) {
      if (cpu) {
        to = there(from);
      } else if (!to.defined()) {
        to = there(from).to(nets_.options());
      } else if (version < 0 || have != version) {
        to.copy_(there(from));
      } else {
        return;
      }
      have = version;
    };
    const bool first = !policy.defined() || cpu;
    copied(policy, parameters.policy, parameters.policy_version, versions_[0]);
    if (room_.critic) {
      copied(critic, parameters.critic, parameters.critic_version, versions_[1]);
    } else if (!critic.defined()) {
      critic = at::zeros({nets_.count(Part::kCritic)}, nets_.options());
    }
    if (first) nets_.bind(policy, critic);
  }

  ModelSpec spec_;
  PolicyRoom room_;
  at::Device device_;
  VlaConfig config_;
  VlaNets nets_;
  EvaluatedDistribution<float> pi_;

  // Of the last calls.
  Tensor parameters_[2];
  std::int64_t versions_[2] = {-1, -1};
  std::size_t evaluated_ = 0;
  std::vector<float> encoded_, scaled_;  // [rows, observation_size]
  Tensor outputs_, values_;              // of the host
  DistributionView<float> view_;
  AlignedVector<float> d_outputs_;  // [learned, outputs]
};

}  // namespace

std::unique_ptr<Policy<float>> make_vla_policy(const ModelSpec& spec, const PolicyRoom& room) {
  return std::make_unique<VlaPolicy>(spec, room);
}

// Parameters and gradients of the network's own; of each row what its layers keep, nearly.
PolicyMemory vla_policy_memory(const ModelSpec& spec, const PolicyRoom& room) {
  const VlaConfig c = vla_config_of(spec);
  const auto patches = static_cast<double>(cameras_of(spec) * c.patches());
  const double tokens = patches + static_cast<double>(c.actions() + c.longest_prompt + 2);
  double floats = tokens * static_cast<double>(c.layers * (8 * c.width + 3 * c.hidden)) +
                  static_cast<double>(c.actions() * c.choices);
  for (const TowerConfig& t : c.towers) {
    floats += patches * static_cast<double>(t.blocks() * (8 * t.width + 2 * t.hidden));
  }
  const double each = room.device == "cpu" ? 4 : 2;
  double parameters = 0;
  for (const VlaTensor& t : vla_tensors(c)) parameters += static_cast<double>(t.size());
  PolicyMemory memory;
  const double kept = room.learned > 0 ? static_cast<double>(room.rows)
                                       : static_cast<double>(room.rows) / static_cast<double>(c.layers);
  memory.held = each * kept * floats + 4 * static_cast<double>(room.rows * spec.distribution.outputs());
  if (room.learned > 0) memory.held += each * parameters;
  memory.at_first = 4 * parameters;
  return memory;
}

}  // namespace gipo
