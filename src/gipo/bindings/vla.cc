#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <filesystem>

#include "gipo/bindings/arrays.h"
#include "gipo/bindings/bindings.h"
#include "gipo/core/error.h"
#include "gipo/core/random.h"
#include "gipo/plan/config_file.h"
#include "gipo/vla/vla_checkpoint.h"
#include "gipo/vla/vla_model.h"

namespace gipo::bindings {
namespace {

using Prompts = std::vector<std::vector<std::int32_t>>;

// The model, with the checkpoint that it came from. Python's lock is released while it computes.
class PythonLargeModel {
 public:
  PythonLargeModel(const std::string& model, const std::string& device, bool train, bool frozen_vision,
                   std::int64_t rank, double alpha, std::tuple<std::int64_t, std::int64_t, std::int64_t> recompute,
                   bool deterministic, int act_bits, std::uint64_t seed) {
    VlaSetup setup;
    if (std::filesystem::is_directory(model)) {
      source_ = std::make_unique<VlaCheckpoint>(model);
      source_->check();
      setup.config = source_->config();
    } else {
      setup.config = vla_preset(model);
    }
    setup.device = device;
    setup.train = {train, frozen_vision, {rank, alpha}};
    setup.recompute = {std::get<0>(recompute), std::get<1>(recompute), std::get<2>(recompute)};
    setup.deterministic = deterministic;
    if (act_bits != 8 && act_bits != 16) {
      throw Error("large model: act_bits = " + std::to_string(act_bits) + ": wanted 8 or 16");
    }
    setup.act_bits = act_bits;
    const nb::gil_scoped_release released;
    model_ = make_large_model(setup);
    model_->fill(seed);
    if (source_) source_->load(*model_);
  }

  const VlaConfig& config() const { return model_->setup().config; }

  std::pair<OwnedArray<float>, OwnedArray<float>> infer(const Array<std::uint8_t>& images, const Prompts& prompts,
                                                        const Array<float>& proprio) {
    VlaOutputs out;
    {
      const VlaInputs inputs = inputs_of(images, prompts, proprio);
      const nb::gil_scoped_release released;
      out = model_->infer(inputs);
    }
    const auto n = images.shape(0), tokens = static_cast<std::size_t>(config().actions());
    return {to_numpy(std::move(out.logits), {n, tokens, kHeadChoices}), to_numpy(std::move(out.values), {n})};
  }

  std::pair<OwnedArray<std::int32_t>, OwnedArray<float>> act(const Array<std::uint8_t>& images, const Prompts& prompts,
                                                             const Array<float>& proprio, double temperature,
                                                             std::optional<std::uint64_t> seed) {
    if (!(temperature > 0)) throw Error("large model: the temperature must be above 0");
    const auto n = images.shape(0), chunk = static_cast<std::size_t>(config().chunk),
               dims = static_cast<std::size_t>(config().dims);
    std::vector<std::int32_t> action(n * chunk * dims);
    std::vector<float> log_prob(action.size());
    {
      const VlaInputs inputs = inputs_of(images, prompts, proprio);
      const nb::gil_scoped_release released;
      RandomStream random = RandomStream::derive(seed.value_or(0), "large model");
      choose_chunk(model_->act(inputs).logits, temperature, seed ? &random : nullptr, action, log_prob);
    }
    const ArrayShape shape{n, chunk, dims};
    return {to_numpy(std::move(action), shape), to_numpy(std::move(log_prob), shape)};
  }

  nb::dict accumulate(const Array<std::uint8_t>& images, const Prompts& prompts, const Array<float>& proprio,
                      const Array<std::int32_t>& actions, const Array<float>& behaviour, const Array<float>& advantage,
                      const Array<float>& target, const std::optional<Array<float>>& centre,
                      const std::optional<Array<float>>& age, std::int64_t total, const std::string& ratio,
                      double temperature, double entropy_coef, double value_coef, bool value_reaches_trunk,
                      const OptionValues& surrogate) {
    LoadedConfig loaded;
    for (const auto& [key, value] : surrogate) set_option(loaded, "surrogate." + key, value, "gipo.LargeModel");
    VlaObjective objective;
    objective.surrogate = loaded.config.surrogate;
    objective.temperature = temperature, objective.entropy_coef = entropy_coef, objective.value_coef = value_coef;
    objective.value_reaches_trunk = value_reaches_trunk;
    if (ratio != "token" && ratio != "action" && ratio != "chunk") {
      throw Error("large model: ratio = " + ratio + " is not known; known: token, action, chunk");
    }
    objective.ratio = ratio == "token"    ? ChunkRatio::kToken
                      : ratio == "action" ? ChunkRatio::kAction
                                          : ChunkRatio::kChunk;
    const auto given = [](const std::optional<Array<float>>& a) { return a ? view(*a) : std::span<const float>(); };
    const VlaSamples samples{inputs_of(images, prompts, proprio),
                             view(actions),
                             view(behaviour),
                             given(centre),
                             view(advantage),
                             given(age),
                             view(target)};
    VlaFigures f;
    {
      const nb::gil_scoped_release released;
      f = model_->accumulate(samples, objective, total);
    }
    nb::dict out;
    out["policy_loss"] = f.policy_loss, out["value_loss"] = f.value_loss, out["entropy"] = f.entropy;
    out["log_prob"] = to_numpy(std::move(f.log_prob)), out["log_ratio"] = to_numpy(std::move(f.log_ratio));
    out["multiplier"] = to_numpy(std::move(f.multiplier)), out["values"] = to_numpy(std::move(f.values));
    return out;
  }

  double step(double rate, double value_rate, double beta1, double beta2, double epsilon, double weight_decay,
              double max_norm) {
    const nb::gil_scoped_release released;
    return model_->step({rate, value_rate, beta1, beta2, epsilon, weight_decay, max_norm});
  }

  void save(const std::string& folder, bool merged) {
    const nb::gil_scoped_release released;
    write_vla_checkpoint(*model_, folder, {merged, VlaWriting{}.shard_bytes, source_.get()});
  }
  void save_adapters(const std::string& folder) { write_adapters(*model_, folder); }
  void load_adapters(const std::string& folder) { gipo::load_adapters(*model_, folder); }
  void save_state(const std::string& path) {
    const nb::gil_scoped_release released;
    write_training_state(*model_, path);
  }
  void load_state(const std::string& path) {
    const nb::gil_scoped_release released;
    load_training_state(*model_, path);
  }

 private:
  VlaInputs inputs_of(const Array<std::uint8_t>& images, const Prompts& prompts, const Array<float>& proprio) const {
    const VlaConfig& c = config();
    const auto image = static_cast<std::size_t>(c.image);
    if (images.ndim() != 5 || images.shape(2) != image || images.shape(3) != image || images.shape(4) != 3) {
      throw Error("large model: images: wanted the shape [samples, cameras, " + std::to_string(image) + ", " +
                  std::to_string(image) + ", 3]");
    }
    VlaInputs inputs{static_cast<std::int64_t>(images.shape(0)),
                     static_cast<std::int64_t>(images.shape(1)),
                     view(images),
                     view(proprio),
                     {}};
    for (const auto& prompt : prompts) inputs.prompts.emplace_back(prompt);
    return inputs;
  }

  std::unique_ptr<VlaCheckpoint> source_;
  std::unique_ptr<LargeModel> model_;
};

}  // namespace

void add_vla(nb::module_& m) {
  const auto array = [](const char* name) { return nb::arg(name).noconvert(); };
  nb::class_<PythonLargeModel>(m, "LargeModel", "A policy of OpenVLA-OFT's architecture.")
      .def(nb::init<const std::string&, const std::string&, bool, bool, std::int64_t, double,
                    std::tuple<std::int64_t, std::int64_t, std::int64_t>, bool, int, std::uint64_t>(),
           nb::arg("model"), nb::arg("device"), nb::arg("train"), nb::arg("frozen_vision"), nb::arg("rank"),
           nb::arg("alpha"), nb::arg("recompute"), nb::arg("deterministic"), nb::arg("act_bits"), nb::arg("seed"))
      .def_prop_ro("config", [](const PythonLargeModel& self) { return vla_config_text(self.config()); })
      .def("infer", &PythonLargeModel::infer, array("images"), nb::arg("prompts"), array("proprio"))
      .def("act", &PythonLargeModel::act, array("images"), nb::arg("prompts"), array("proprio"), nb::arg("temperature"),
           nb::arg("seed").none())
      .def("accumulate", &PythonLargeModel::accumulate, array("images"), nb::arg("prompts"), array("proprio"),
           array("actions"), array("behaviour"), array("advantage"), array("target"), nb::arg("centre").none(),
           nb::arg("age").none(), nb::arg("total"), nb::arg("ratio"), nb::arg("temperature"), nb::arg("entropy_coef"),
           nb::arg("value_coef"), nb::arg("value_reaches_trunk"), nb::arg("surrogate"))
      .def("step", &PythonLargeModel::step, nb::arg("rate"), nb::arg("value_rate"), nb::arg("beta1"), nb::arg("beta2"),
           nb::arg("epsilon"), nb::arg("weight_decay"), nb::arg("max_norm"))
      .def("save", &PythonLargeModel::save, nb::arg("folder"), nb::arg("merged"))
      .def("save_adapters", &PythonLargeModel::save_adapters, nb::arg("folder"))
      .def("load_adapters", &PythonLargeModel::load_adapters, nb::arg("folder"))
      .def("save_state", &PythonLargeModel::save_state, nb::arg("path"))
      .def("load_state", &PythonLargeModel::load_state, nb::arg("path"));
}

}  // namespace gipo::bindings
