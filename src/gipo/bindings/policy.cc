#include "gipo/policy/policy.h"

#include <fmt/format.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "gipo/bindings/arrays.h"
#include "gipo/bindings/bindings.h"
#include "gipo/core/error.h"
#include "gipo/run/export.h"
#include "gipo/train/evaluator.h"

namespace gipo::bindings {
namespace {

constexpr std::size_t kRowsTogether = 1024;

// A trained policy that acts. Holds the interpreter's lock while it works: one object, one thread at a time.
class ActingPolicy {
 public:
  explicit ActingPolicy(SavedPolicy saved) : saved_(std::move(saved)), random_(stream(0)) {}
  ActingPolicy(const std::string& run_or_file, const std::string& which)
      : ActingPolicy(load_policy(run_or_file, which)) {}

  const SavedPolicy& saved() const { return saved_; }

  using AnyArray = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;
  using Raw = std::vector<AnyArray>;  // [N, ...] of each field that an encoder reads

  // [N, state_size] of a policy with memory: that of before; none: that of before an episode.
  using State = std::optional<nb::ndarray<float, nb::ndim<2>, nb::c_contig, nb::device::cpu>>;

  // Observations [N, size] -> the numbers of actions [N, dims], choices counted from 0. mask [N, mask_size] of a masked
  // policy: which are valid. The state becomes that of after.
  OwnedArray<double> act(const Array<float>& observations, const Raw& raw, bool deterministic,
                         std::optional<std::uint64_t> seed, const std::optional<Array<std::uint8_t>>& mask,
                         const State& state) {
    if (seed) random_ = stream(*seed);
    const ModelSpec& model = saved_.model;
    const std::size_t rows = observations.shape(0), dims = model.distribution.dims();
    if (model.distribution.masked) check_mask(mask, rows);
    std::vector<float> actions(rows * dims), log_probs(rows * dims);
    std::vector<double> all(rows * dims);
    std::vector<ActionRow> choices;
    for_rows(observations, raw, mask ? mask->data() : nullptr, state,
             [&](Policy<float>& policy, std::size_t begin, std::size_t n) {
               choices.clear();
               for (std::size_t i = begin; i < begin + n; ++i) {
                 choices.push_back({deterministic ? nullptr : &random_,
                                    {actions.data() + i * dims, dims},
                                    {log_probs.data() + i * dims, dims}});
               }
               policy.forward(n);
               policy.choose(choices);
               if (state) policy.next_state(state->data() + begin * model.state_size());
               for (std::size_t i = 0; i < n; ++i)
                 to_env_action(model, choices[i].action, {&all[(begin + i) * dims], dims});
             });
    return to_numpy(std::move(all), {rows, dims});
  }

  // From here on actions are sampled as in this episode of an evaluation.
  void begin_episode(std::uint64_t seed, std::size_t episode) { random_ = action_stream(seed, episode); }

  // What the distribution is made of, under the names of the exported model's outputs: logits [N, sum of choices] of
  // the categorical dimensions, mean [N, ...] and log_std of the gaussian ones.
  nb::dict parameters(const Array<float>& observations, const Raw& raw, const State& state) {
    const DistributionSpec& spec = saved_.model.distribution;
    const std::size_t rows = observations.shape(0), outputs = spec.outputs(), gaussians = spec.extra_parameters();
    std::vector<float> logits, mean;
    logits.reserve(rows * spec.mask_size());
    mean.reserve(rows * gaussians);
    for_rows(observations, raw, nullptr, state, [&](Policy<float>& policy, std::size_t, std::size_t n) {
      policy.forward(n);
      const float* out = policy.distribution().outputs;
      for (const float* last = out + n * outputs; out < last;) {
        for (const std::int64_t choices : spec.choices) {
          std::vector<float>& to = choices > 0 ? logits : mean;
          const float* end = out + std::max<std::int64_t>(choices, 1);
          to.insert(to.end(), out, end);
          out = end;
        }
      }
    });
    nb::dict out;
    if (spec.mask_size() > 0) out["logits"] = to_numpy(std::move(logits), {rows, spec.mask_size()});
    if (gaussians == 0) return out;
    out["mean"] = to_numpy(std::move(mean), {rows, gaussians});
    const std::span<const float> extra = std::span<const float>(saved_.weights.policy).last(gaussians);
    out["log_std"] = to_numpy(std::vector<float>(extra.begin(), extra.end()));
    return out;
  }

  OwnedArray<float> value(const Array<float>& observations, const Raw& raw, const State& state) {
    std::vector<float> all(observations.shape(0));
    for_rows(observations, raw, nullptr, state, [&](Policy<float>& policy, std::size_t begin, std::size_t n) {
      std::copy_n(policy.values(), n, all.begin() + static_cast<std::ptrdiff_t>(begin));
    });
    return to_numpy(std::move(all));
  }

 private:
  static RandomStream stream(std::uint64_t seed) { return RandomStream::derive(seed, "act"); }

  void check_mask(const std::optional<Array<std::uint8_t>>& mask, std::size_t rows) const {
    const std::size_t size = saved_.model.distribution.mask_size();
    if (!mask || mask->size() != rows * size) {
      throw Error(
          fmt::format("{}: its actions are masked: wanted a mask of shape ({}, {})", saved_.env_id, rows, size));
    }
    for (std::size_t r = 0; r < rows; ++r) {
      if (any_valid(saved_.model.distribution, mask->data() + r * size)) continue;
      throw Error(fmt::format("{}: the mask leaves no valid action in row {}", saved_.env_id, r));
    }
  }

  // Calls f(policy that has seen some rows, the first of them, how many).
  template <class F>
  void for_rows(const Array<float>& observations, const Raw& raw, const std::uint8_t* mask, const State& state, F&& f) {
    const std::size_t rows = observations.shape(0), size = saved_.model.observation_size,
                      choices = saved_.model.distribution.mask_size(), remembered = saved_.model.state_size();
    GIPO_CHECK(!state || state->size() == rows * remembered);
    for (std::size_t begin = 0; begin < rows; begin += kRowsTogether) {
      const std::size_t n = std::min(kRowsTogether, rows - begin);
      std::vector<const std::byte*> columns;
      std::size_t next = 0;  // of the raw ones
      for (const Field& field : saved_.model.fields) {
        if (field.role == Role::kMask) {
          columns.push_back(mask ? reinterpret_cast<const std::byte*>(mask + begin * choices) : nullptr);
        } else if (field.raw) {
          GIPO_CHECK(next < raw.size() && raw[next].nbytes() == rows * field.bytes());
          columns.push_back(static_cast<const std::byte*>(raw[next++].data()) + begin * field.bytes());
        } else {
          columns.push_back(reinterpret_cast<const std::byte*>(observations.data() + begin * size));
        }
      }
      Policy<float>& policy = with_room(n);
      policy.see(parameters_of(saved_.weights), {columns, n, state ? state->data() + begin * remembered : nullptr});
      f(policy, begin, n);
    }
  }

  // Made anew, larger, where it has less.
  Policy<float>& with_room(std::size_t rows) {
    if (rows > room_) policy_ = make_policy<float>(saved_.model, {room_ = std::max(rows, 2 * room_)});
    return *policy_;
  }

  SavedPolicy saved_;
  RandomStream random_;
  std::size_t room_ = 0;
  std::unique_ptr<Policy<float>> policy_;
};

}  // namespace

nb::object acting_policy(SavedPolicy policy) { return nb::cast(ActingPolicy(std::move(policy))); }

void add_policy(nb::module_& m) {
  nb::class_<ActingPolicy>(m, "Policy", "A trained policy.")
      .def(nb::init<const std::string&, const std::string&>(), nb::arg("run_or_file"), nb::arg("which"))
      .def("act", &ActingPolicy::act, nb::arg("observations").noconvert(), nb::arg("raw"), nb::arg("deterministic"),
           nb::arg("seed").none(), nb::arg("mask").noconvert().none(), nb::arg("state").noconvert().none(),
           "Numbers of actions [N, dims] for observations [N, size]; mask [N, mask_size] of a masked policy; state [N, "
           "state_size] of one with memory, which becomes that of after.")
      .def("begin_episode", &ActingPolicy::begin_episode, nb::arg("seed"), nb::arg("episode"),
           "Samples from here on as this episode of an evaluation does.")
      .def_prop_ro(
          "mask_size",
          [](const ActingPolicy& p) {
            const DistributionSpec& spec = p.saved().model.distribution;
            return spec.masked ? spec.mask_size() : 0;
          },
          "Values of a mask of valid actions; 0 where the policy has none.")
      .def("parameters", &ActingPolicy::parameters, nb::arg("observations").noconvert(), nb::arg("raw"),
           nb::arg("state").noconvert().none(), "The distribution's parameters for observations [N, size].")
      .def("value", &ActingPolicy::value, nb::arg("observations").noconvert(), nb::arg("raw"),
           nb::arg("state").noconvert().none(), "The critic's values for observations [N, size].")
      .def_prop_ro(
          "env", [](const ActingPolicy& p) { return p.saved().env_id; }, "Id of the task.")
      .def_prop_ro(
          "version", [](const ActingPolicy& p) { return p.saved().weights.version; }, "Updates behind it.")
      .def_prop_ro(
          "observation_size", [](const ActingPolicy& p) { return p.saved().model.observation_size; },
          "Values of an observation.")
      .def_prop_ro(
          "state_size", [](const ActingPolicy& p) { return p.saved().model.state_size(); },
          "Numbers that a policy with memory carries from step to step; 0 where it has none.")
      .def_prop_ro(
          "raw_fields",
          [](const ActingPolicy& p) {
            std::vector<std::string> names;
            for (const Field& f : p.saved().model.fields) {
              if (f.raw) names.push_back(f.name);
            }
            return names;
          },
          "The fields of an observation that encoders read as they are, in the order of `raw`.")
      .def_prop_ro(
          "action_kind", [](const ActingPolicy& p) { return name_of(p.saved().model.action.kind); },
          "discrete, multi_discrete, box or composed.")
      .def_prop_ro(
          "action_dims", [](const ActingPolicy& p) { return p.saved().model.action.dims(); }, "Values of an action.")
      .def_prop_ro(
          "spaces", [](const ActingPolicy& p) { return p.saved().model.spaces; },
          "The task's spaces as JSON; empty where the file does not say.");
  m.def("export_policy", &export_policy, nb::arg("run_or_file"), nb::arg("file"), nb::arg("which"),
        "Writes NAME.onnx or NAME.safetensors.");
}

}  // namespace gipo::bindings
