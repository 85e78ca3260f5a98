// Runs the large model on arrays for another program:
//
//   vla_probe CHECKPOINT INPUT OUTPUT [lora=RANK] [ratio=token|action|chunk] [surrogate=NAME] [centred=1] [growth=G]
//             [layers=N] [products=N] [blocks=N] [steps=N] [split=1] [write=FOLDER] [merged=1] [adapters=FOLDER]
//
// INPUT and OUTPUT are safetensors files. In: images, proprio, prompts (padded with -1); and for a gradient actions,
// behaviour, advantage, target, centre, age. Out: logits, values, and of a gradient its figures and `gradient.NAME`. With
// steps: after so many updates the tensors as `after.NAME`. split: the gradient in two parts.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

#include "gipo/core/error.h"
#include "gipo/io/files.h"
#include "gipo/io/safetensors.h"
#include "gipo/vla/vla_checkpoint.h"
#include "gipo/vla/vla_model.h"

namespace {

using namespace gipo;

struct Output {
  std::map<std::string, std::pair<Shape, std::vector<float>>> arrays;

  void add(const std::string& name, const Shape& shape, std::vector<float> values) {
    arrays[name] = {shape, std::move(values)};
  }
  void write(const std::string& path) const {
    std::vector<TensorView> views;
    for (const auto& [name, array] : arrays) {
      views.push_back(view_tensor<float>(name, array.first, std::span<const float>(array.second)));
    }
    write_file_atomic(path, write_safetensors(views));
  }
};

class Input {
 public:
  explicit Input(const std::string& path) : file_(read_file(path), path) {
    const Shape& shape = file_.entries().at("images").shape;
    inputs_.n = static_cast<std::int64_t>(shape[0]), inputs_.cameras = static_cast<std::int64_t>(shape[1]);
    images_ = file_.read<std::uint8_t>("images");
    if (has("proprio")) proprio_ = file_.read<float>("proprio");
    const auto tokens = file_.read<std::int64_t>("prompts");
    const std::size_t longest = file_.entries().at("prompts").shape[1];
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      if (i % longest == 0) prompts_.emplace_back();
      if (tokens[i] >= 0) prompts_.back().push_back(static_cast<std::int32_t>(tokens[i]));
    }
    inputs_.images = images_;
    inputs_.proprio = proprio_;
    for (const auto& prompt : prompts_) inputs_.prompts.emplace_back(prompt);
  }

  bool has(const std::string& name) const { return file_.contains(name); }
  const VlaInputs& inputs() const { return inputs_; }
  VlaSamples samples() {
    for (const std::int64_t a : file_.read<std::int64_t>("actions")) actions_.push_back(static_cast<std::int32_t>(a));
    const auto floats = [this](const std::string& name) {
      if (has(name)) floats_[name] = file_.read<float>(name);
      return std::span<const float>(floats_[name]);
    };
    return {inputs_,       actions_,        floats("behaviour"), floats("centre"), floats("advantage"),
            floats("age"), floats("target")};
  }

 private:
  SafeTensors file_;
  VlaInputs inputs_;
  std::vector<std::uint8_t> images_;
  std::vector<float> proprio_;
  std::vector<std::vector<std::int32_t>> prompts_;
  std::vector<std::int32_t> actions_;
  std::map<std::string, std::vector<float>> floats_;
};

// Samples [begin, end) of them.
VlaSamples part_of(const VlaSamples& s, std::size_t begin, std::size_t end) {
  const auto n = static_cast<std::size_t>(s.inputs.n);
  const auto cut = [&](auto span) { return span.subspan(span.size() / n * begin, span.size() / n * (end - begin)); };
  VlaSamples part = s;
  part.inputs.n = static_cast<std::int64_t>(end - begin);
  part.inputs.images = cut(s.inputs.images), part.inputs.proprio = cut(s.inputs.proprio);
  part.inputs.prompts.assign(s.inputs.prompts.begin() + static_cast<std::ptrdiff_t>(begin),
                             s.inputs.prompts.begin() + static_cast<std::ptrdiff_t>(end));
  part.actions = cut(s.actions), part.behaviour = cut(s.behaviour), part.centre = cut(s.centre);
  part.advantage = cut(s.advantage), part.age = cut(s.age), part.target = cut(s.target);
  return part;
}

void probe(const std::string& folder, const std::string& in, const std::string& out,
           std::map<std::string, std::string> o) {
  const auto number = [&](const std::string& key, double otherwise) {
    return o.contains(key) ? std::atof(o[key].c_str()) : otherwise;
  };
  const VlaCheckpoint checkpoint(folder);
  checkpoint.check();
  Input input(in);
  VlaSetup setup;
  setup.config = checkpoint.config();
  setup.train.train = input.has("actions");
  setup.train.lora.rank = static_cast<std::int64_t>(number("lora", 0));
  setup.recompute = {static_cast<std::int64_t>(number("layers", -1)), static_cast<std::int64_t>(number("products", 0)),
                     static_cast<std::int64_t>(number("blocks", -1))};
  const auto model = make_large_model(setup);
  model->fill(1);
  checkpoint.load(*model);
  if (o.contains("adapters")) load_adapters(*model, o["adapters"]);

  Output output;
  const auto n = static_cast<std::uint64_t>(input.inputs().n),
             tokens = static_cast<std::uint64_t>(setup.config.actions());
  VlaOutputs said = model->infer(input.inputs());
  output.add("logits", {n, tokens, 256}, std::move(said.logits));
  output.add("values", {n}, std::move(said.values));
  if (setup.train.train) {
    const VlaSamples samples = input.samples();
    VlaObjective objective;
    objective.value_reaches_trunk = true;
    objective.entropy_coef = 0.01;
    objective.surrogate.name = o.contains("surrogate") ? o["surrogate"] : "gipo";
    objective.surrogate.sigma_growth = number("growth", 0);
    if (o.contains("centred")) objective.surrogate.centre = Centre::kProximal;
    if (o["ratio"] == "action") objective.ratio = ChunkRatio::kAction;
    if (o["ratio"] == "chunk") objective.ratio = ChunkRatio::kChunk;
    for (int step = 0; step <= static_cast<int>(number("steps", 0)); ++step) {
      if (step > 0) {
        VlaStep how;
        how.rate = 1e-3;
        output.add("norm", {1}, {static_cast<float>(model->step(how))});
      }
      VlaFigures figures;
      if (o.contains("split")) {
        const std::size_t half = static_cast<std::size_t>(n) / 2;
        figures = model->accumulate(part_of(samples, 0, half), objective, static_cast<std::int64_t>(n));
        figures = model->accumulate(part_of(samples, half, n), objective, static_cast<std::int64_t>(n));
      } else {
        figures = model->accumulate(samples, objective, static_cast<std::int64_t>(n));
      }
      const Shape by_ratio = {figures.log_ratio.size()};
      output.add("log_ratio", by_ratio, figures.log_ratio);
      output.add("multiplier", by_ratio, figures.multiplier);
      output.add("policy_loss", {1}, {static_cast<float>(figures.policy_loss)});
      output.add("value_loss", {1}, {static_cast<float>(figures.value_loss)});
      if (step > 0) continue;
      for (std::size_t i = 0; i < model->tensors().size(); ++i) {
        const VlaTensor& t = model->tensors()[i];
        if (is_trained(setup.train, t.part)) output.add("gradient." + t.name, t.shape, model->gradient(i));
      }
    }
    for (std::size_t i = 0; o.contains("steps") && i < model->tensors().size(); ++i) {
      std::string bytes;
      model->get_tensor(i, false, [&](std::string_view piece) { bytes += piece; });
      std::vector<float> values(bytes.size() / 4);
      std::memcpy(values.data(), bytes.data(), bytes.size());
      output.add("after." + model->tensors()[i].name, model->tensors()[i].shape, std::move(values));
    }
  }
  if (o.contains("write")) {
    write_vla_checkpoint(*model, o["write"], {o.contains("merged"), 500'000, &checkpoint});
    if (setup.train.lora.rank > 0) write_adapters(*model, o["write"] + ".adapters");
  }
  output.write(out);
}

}  // namespace

int main(int count, char** words) {
  if (count < 4) return 2;
  std::map<std::string, std::string> options;
  for (int i = 4; i < count; ++i) {
    const std::string word = words[i];
    const std::size_t at = word.find('=');
    if (at == std::string::npos) return 2;
    options[word.substr(0, at)] = word.substr(at + 1);
  }
  try {
    probe(words[1], words[2], words[3], options);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 2;
  }
  return 0;
}
