#include "gipo/policy/torch_policy.h"

#include <ATen/Version.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "gipo/core/error.h"
#include "gipo/core/random.h"
#include "gipo/data/encode.h"
#include "gipo/policy/large_policy.h"
#include "gipo/policy/onnx_networks.h"
#include "gipo/policy/torch/torch_nets.h"
#include "gipo/policy/torch/vla_policy.h"
#include "gipo/policy/vla_spec.h"
#include "gipo/vla/torch/torch_graph.h"

namespace gipo {
namespace {

using torch::Tensor;

constexpr double kPolicyGain = 0.01, kCriticGain = 1;  // of the first weights at the output

void copy_to(const Tensor& from, std::span<float> out, const torch::Device& device = torch::kCPU) {
  if (!out.empty()) floats_at(out, device).copy_(from.reshape(-1));
}

class TorchPolicy final : public Policy<float> {
 public:
  TorchPolicy(const ModelSpec& spec, const PolicyRoom& room)
      : spec_(spec),
        room_(room),
        device_(room.device),
        arrays_at_(room.ranks ? device_ : torch::Device(torch::kCPU)),
        nets_(spec, room.learned > 0, room.bf16, device_),
        pi_(spec.distribution, room.learned),
        mask_field_(mask_field(spec.fields)) {}

  std::vector<TensorSlice> tensors(Part part) const override {
    std::vector<TensorSlice> slices = network(part).layout().slices();
    for (TensorSlice& s : slices) s.name = (part == Part::kPolicy ? "policy." : "critic.") + s.name;
    const std::size_t extra = part == Part::kPolicy ? spec_.distribution.extra_parameters() : 0;
    if (extra > 0) slices.push_back({"policy.log_std", count(part), {static_cast<std::int64_t>(extra)}});
    return slices;
  }

  void initialise(Part part, std::span<float> parameters, RandomStream& random) const override {
    network(part).layout().initialise(parameters.first(count(part)), random, spec_.options.init,
                                      part == Part::kPolicy ? kPolicyGain : kCriticGain);
    std::ranges::fill(parameters.subspan(count(part)), static_cast<float>(spec_.options.init_log_std));
  }

  void constrain(std::span<float> policy) const override {
    const std::span<float> log_std = policy.subspan(count(Part::kPolicy));
    if (!log_std.empty()) floats_at(log_std, arrays_at_).clamp_(kMinLogStd, kMaxLogStd);
  }

  void see(const PolicyParameters<float>& parameters, const PolicyInput& input) override {
    GIPO_CHECK(input.columns.size() == spec_.fields.size() && input.rows <= room_.rows);
    stay_on_this_thread();
    bind(parameters);
    mask_ = spec_.distribution.masked ? reinterpret_cast<const std::uint8_t*>(input.columns[mask_field_]) : nullptr;
    const torch::NoGradGuard none;
    TorchRows seen;
    seen.rows = input.rows;
    seen.sequences.assign(input.sequences.begin(), input.sequences.end());
    if (spec_.has_memory()) seen.state = state_before(input);
    std::size_t all = seen.rows;
    for (const Sequence& s : seen.sequences) all = std::max(all, s.context_begin + s.context);
    const auto rows = static_cast<std::int64_t>(all), width = static_cast<std::int64_t>(spec_.observation_size);
    if (width > 0) {
      encoded_.resize(std::max(all, room_.rows) * spec_.observation_size);
      scaled_.resize(encoded_.size());
      encode(spec_.fields, input.columns, all, encoded_.data());
      parameters.scale->apply<float>({encoded_.data(), all * spec_.observation_size}, scaled_.data());
      seen.floats = torch::from_blob(scaled_.data(), {rows, width}).to(device_);
    }
    seen.raw.resize(spec_.fields.size());
    for (std::size_t f = 0; f < spec_.fields.size(); ++f) {
      if (!spec_.fields[f].raw) continue;
      const Tensor field = rows_of(spec_.fields[f], input.columns[f], rows, torch::kCPU).to(device_);
      seen.raw[f] = as_input(spec_.fields[f], spec_.encoders[f], field);
    }
    nets_.see(std::move(seen));
  }

  void see_as(const PolicyParameters<float>& parameters, const Policy<float>& other) override {
    const auto& twin = static_cast<const TorchPolicy&>(other);
    bind(parameters);
    mask_ = twin.mask_;
    TorchRows seen = twin.nets_.seen();
    seen.rows = std::min(seen.rows, room_.rows);
    nets_.see(std::move(seen));
  }

  void forward(std::size_t rows) override {
    GIPO_CHECK(rows <= nets_.seen().rows);
    stay_on_this_thread();
    evaluated_ = rows;
    outputs_ = on_device(device_, [&] { return nets_.outputs(rows); });
    host_outputs_ = outputs_.detach().to(torch::kCPU);
    view_ = {host_outputs_.const_data_ptr<float>(), extra_};
    if (learns()) pi_.evaluate(view_, rows, mask_);
  }

  void choose(std::span<const ActionRow> rows) override {
    GIPO_CHECK(rows.size() == evaluated_);
    choose_actions(spec_.distribution, view_, rows, mask_);
  }

  void next_state(float* out) override {
    if (!spec_.has_memory()) return;
    const Tensor next = nets_.next_state();
    copy_to(next, {out, static_cast<std::size_t>(next.numel())});
  }

  DistributionView<float> distribution() const override { return view_; }
  void log_prob(const float* actions, float* out) const override { pi_.log_prob(actions, out); }
  void entropy(float* out) const override { pi_.entropy(out); }
  void kl_divergence(const Policy<float>& other, float* out) const override {
    pi_.kl_divergence(static_cast<const TorchPolicy&>(other).pi_, out);
  }

  void policy_gradient(const float* actions, const PolicyLoss<float>& loss, std::span<float> gradient) override {
    d_outputs_.resize(room_.learned * spec_.distribution.outputs());
    DistributionLoss<float> of_outputs{loss.d_log_prob, loss.entropy_coef, loss.kl_coef, nullptr};
    if (loss.other) of_outputs.other = &static_cast<const TorchPolicy*>(loss.other)->pi_;
    d_extra_.resize(extra_.size());
    pi_.gradient(actions, of_outputs, d_outputs_.data(), d_extra_);
    if (!extra_.empty()) copy_to(floats_at(d_extra_, torch::kCPU), gradient.last(extra_.size()), arrays_at_);
    backward(network(Part::kPolicy), outputs_, d_outputs_.data(), gradient);
  }

  const float* values() override {
    stay_on_this_thread();
    values_ = on_device(device_, [&] { return nets_.values(); });
    host_values_ = values_.detach().to(torch::kCPU);
    return host_values_.const_data_ptr<float>();
  }

  void value_gradient(const float* d_values, std::size_t rows, std::span<float> gradient) override {
    backward(network(Part::kCritic), first_rows(values_, rows), d_values, gradient);
  }

  void add_to(OnnxGraph& graph, std::span<const float> policy, const OnnxObservation& x,
              const std::string& output) const override {
    NetworkInput<std::string> in{{}, x.raw};
    if (!x.floats.empty()) in.floats.push_back(x.floats);
    const TorchNetwork& net = network(Part::kPolicy);
    OnnxNetworks b(graph, net.layout().slices(), policy, x.state);
    graph.node("Identity", {net.run(b, in, 0, net.layers())}, {}, {output});
  }

 private:
  bool learns() const { return room_.learned > 0; }
  const TorchNetwork& network(Part part) const { return nets_.network(part); }
  std::size_t count(Part part) const { return network(part).layout().parameter_count(); }

  void bind(const PolicyParameters<float>& parameters) {
    extra_.resize(parameters.policy.size() - count(Part::kPolicy));
    if (!extra_.empty()) copy_to(floats_at(parameters.policy.last(extra_.size()), arrays_at_), extra_);
    bind(Part::kPolicy, parameters.policy, parameters.policy_version);
    if (room_.critic) bind(Part::kCritic, parameters.critic, parameters.critic_version);
  }
  void bind(Part part, std::span<const float> parameters, std::int64_t version) {
    TorchNetwork& network = nets_.network(part);
    if (room_.ranks) return network.bind(const_cast<float*>(parameters.data()), learns(), device_);
    network.bind_copy(parameters, version, learns(), device_);
  }

  Tensor state_before(const PolicyInput& input) const {
    const std::size_t count = input.sequences.empty() ? input.rows : input.sequences.size();
    Tensor state = torch::zeros({static_cast<std::int64_t>(count), static_cast<std::int64_t>(spec_.state_size())});
    if (input.state) std::copy_n(input.state, state.numel(), state.data_ptr<float>());
    return state.to(device_);
  }

  void backward(const TorchNetwork& network, const Tensor& output, const float* d_output,
                std::span<float> gradient) const {
    stay_on_this_thread();
    const Tensor d = torch::from_blob(const_cast<float*>(d_output), output.sizes()).to(output.device());
    const std::vector<Tensor> leaves(network.tensors().begin(), network.tensors().end());
    const std::vector<Tensor> found = torch::autograd::grad({output}, leaves, {d});
    for (std::size_t i = 0; i < found.size(); ++i) {
      const TensorSlice& s = network.layout().slices()[i];
      copy_to(found[i], gradient.subspan(s.offset, s.values()), arrays_at_);
    }
  }

  ModelSpec spec_;
  PolicyRoom room_;
  torch::Device device_, arrays_at_;  // of the networks; of parameters and gradients
  TorchNets nets_;
  EvaluatedDistribution<float> pi_;
  std::size_t mask_field_;

  // Of the last calls.
  std::vector<float> extra_, d_extra_;  // parameters of the distribution
  std::size_t evaluated_ = 0;
  const std::uint8_t* mask_ = nullptr;
  AlignedVector<float> encoded_, scaled_;  // [rows, observation_size]
  Tensor outputs_, values_;
  Tensor host_outputs_, host_values_;  // these, here
  DistributionView<float> view_;
  AlignedVector<float> d_outputs_;  // [learned, outputs]
};

}  // namespace

std::unique_ptr<Policy<float>> make_torch_policy(const ModelSpec& spec, const PolicyRoom& room) {
  if (is_in_place(spec)) return make_large_policy(spec, room);
  if (spec.is_large()) return make_vla_policy(spec, room);
  return std::make_unique<TorchPolicy>(spec, room);
}

// Inputs, what layers keep for the gradient and that gradient itself.
PolicyMemory torch_policy_memory(const ModelSpec& spec, const PolicyRoom& room) {
  if (is_in_place(spec)) return large_policy_memory(spec, room);
  if (spec.is_large()) return vla_policy_memory(spec, room);
  double inputs = 2 * static_cast<double>(spec.observation_size);
  for (const Field& f : spec.fields) inputs += f.raw ? 2 * static_cast<double>(f.values()) : 0;
  const auto rows = static_cast<double>(room.rows), kept = room.learned > 0 ? 2.0 : 1.0;
  const TorchNetwork policy(spec, Part::kPolicy), critic(spec, Part::kCritic);
  const double parameters = static_cast<double>(policy.layout().parameter_count() + critic.layout().parameter_count());
  PolicyMemory memory;
  memory.held =
      4 * rows *
      (inputs + kept * (policy.layout().floats_of_a_row() + (room.critic ? critic.layout().floats_of_a_row() : 0)));
  if (room.learned > 0) memory.held += 4 * parameters;
  memory.at_first = 8 * 4 * parameters;  // an orthogonal matrix is made in double precision from three more of its size
  return memory;
}

std::vector<std::string> torch_cuda_devices() { return graph_devices(); }

// Releases of one minor version have the same functions.
void check_torch_version(std::string_view found) {
  const auto minor = [](std::string_view version) { return version.substr(0, version.rfind('.')); };
  if (minor(found) == minor(TORCH_VERSION)) return;
  throw Error(fmt::format(
      "learner.backend = \"torch\": this program was built with libtorch {}, and finds {}; build it again, or install "
      "torch=={}",
      TORCH_VERSION, found, TORCH_VERSION));
}

// As the library says it among the settings that it was built with.
std::string torch_version_found() {
  constexpr std::string_view kName = "TORCH_VERSION=";
  const std::string settings = at::show_config();
  const std::size_t name = settings.find(kName);
  if (name == std::string::npos) return "one without a version";
  const std::size_t begin = name + kName.size();
  return settings.substr(begin, settings.find_first_not_of("0123456789.", begin) - begin);
}

void check_torch_device(const std::string& device) {
  check_torch_version(torch_version_found());
  const std::vector<std::string> there = graph_devices();
  std::size_t wanted = 0;
  if (device.starts_with("cuda:")) {
    const char* const end = device.data() + device.size();
    const auto [at, fault] = std::from_chars(device.data() + 5, end, wanted);
    if (fault != std::errc() || at != end) wanted = there.size();
  }
  const bool known = device == "cpu" || device == "cuda" || device.starts_with("cuda:");
  if (device == "cpu" || (known && wanted < there.size())) return;
  std::vector<std::string> accepted = {"cpu"};
  for (std::size_t i = 0; i < there.size(); ++i) accepted.push_back(fmt::format("cuda:{} ({})", i, there[i]));
  throw Error(fmt::format(
      "learner.device = \"{}\" is not there: this program has {}{}", device, fmt::join(accepted, ", "),
      there.empty() ? "; a build with -DGIPO_TORCH_CUDA=ON, on a machine with a CUDA device, has more" : ""));
}

std::string torch_version() { return TORCH_VERSION; }

}  // namespace gipo
