#include "gipo/policy/vla_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "gipo/core/error.h"
#include "gipo/vla/vla_checkpoint.h"

namespace gipo {
namespace {

bool reads_image(const ModelSpec& spec, std::size_t f) {
  return spec.encoders[f] == Encoder::kVla && !is_tokens(spec.fields[f]);
}

std::string stripped(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return std::string(text);
}

// What a model has beside its sizes: where it goes, by key.
std::int64_t* place_of(LargeForm& form, std::int64_t& frozen, const std::string& key) {
  if (key == "micro_batch") return &form.micro_batch;
  if (key == "act_bits") return &form.act_bits;
  if (key == "lora") return &form.train.lora.rank;
  if (key == "frozen_vision") return &frozen;
  if (key == "recompute_layers") return &form.recompute.layers;
  if (key == "recompute_blocks") return &form.recompute.blocks;
  return nullptr;
}

// A model or the folder of a checkpoint, and KEY=NUMBER, ...
LargeForm read_form(const std::string& text) {
  LargeForm form;
  std::int64_t frozen = 0;
  std::size_t comma = std::min(text.find(','), text.size());
  const std::string name = stripped(std::string_view(text).substr(0, comma));
  if (name.find('/') != std::string::npos) {
    form.folder = name;
    form.config = VlaCheckpoint(name).config();
  } else {
    form.config = vla_preset(name);
  }
  while (comma < text.size()) {
    const std::size_t begin = comma + 1;
    comma = std::min(text.find(',', begin), text.size());
    const std::string entry = stripped(std::string_view(text).substr(begin, comma - begin));
    const std::size_t equals = std::min(entry.find('='), entry.size());
    const std::string key = stripped(std::string_view(entry).substr(0, equals));
    const std::string number = stripped(std::string_view(entry).substr(std::min(equals + 1, entry.size())));
    std::int64_t* const to = place_of(form, frozen, key);
    if (to == nullptr) {
      set_vla_size(form.config, key, number);
      continue;
    }
    const auto [end, fault] = std::from_chars(number.data(), number.data() + number.size(), *to);
    if (fault != std::errc() || end != number.data() + number.size() || *to < -1 || *to > 65536) {
      throw Error(fmt::format("{} = {}: wanted a number", key, number));
    }
  }
  form.train.frozen_vision = frozen != 0;
  if (form.micro_batch < 0) throw Error(fmt::format("micro_batch = {}: wanted 0 or more", form.micro_batch));
  if (form.act_bits != 8 && form.act_bits != 16) {
    throw Error(fmt::format("act_bits = {}: wanted 8 or 16", form.act_bits));
  }
  if (form.micro_batch == 0 &&
      (form.train.lora.rank != 0 || frozen != 0 || form.act_bits != 16 || !form.folder.empty())) {
    throw Error("lora, frozen_vision, act_bits and the folder of a checkpoint need micro_batch");
  }
  return form;
}

LargeForm parse_form(const std::string& text) {
  try {
    return read_form(text);
  } catch (const Error& e) {
    throw Error(fmt::format("policy.model = \"{}\" is not accepted: {}", text, e.what()));
  }
}

}  // namespace

LargeForm large_form(const ModelSpec& spec) {
  const auto want = [](bool good, const std::string& what) {
    if (!good) throw Error("policy.encoder: openvla_oft " + what);
  };
  LargeForm form = parse_form(spec.options.model);
  VlaConfig& c = form.config;
  want(!spec.has_memory(), fmt::format("has no memory, and policy.memory is {}", word_of(spec.options.memory)));
  want(!spec.distribution.masked, "reads no mask of valid actions, and the task has one");
  want(spec.privileged == 0, "has no field that the critic alone reads, and the task has one");
  want(std::ranges::all_of(spec.distribution.choices, [&](std::int64_t n) { return n == c.choices; }),
       fmt::format("needs actions of {} choices each (robot tasks: env.options.action_bins = {})", c.choices,
                   c.choices));
  c.chunk = 1;
  c.dims = static_cast<std::int64_t>(spec.distribution.dims());
  c.proprio = static_cast<std::int64_t>(spec.observation_size);
  std::int64_t images = 0, texts = 0;
  for (std::size_t f = 0; f < spec.encoders.size(); ++f) {
    const Field& field = spec.fields[f];
    if (spec.encoders[f] == Encoder::kVla && is_tokens(field)) {
      ++texts;
      c.longest_prompt = field.shape[0];
    } else if (reads_image(spec, f)) {
      const ImageShape shape = image_shape(field);
      want(shape.channels == 3 && shape.channels_last && shape.height == shape.width,
           fmt::format("reads square images with three colours, the colours last, and the field {} is none",
                       field.name));
      want(images == 0 || c.image == shape.height, fmt::format("reads images of one size, and {} differs", field.name));
      c.image = shape.height;
      ++images;
    }
  }
  want(images >= 1 && images <= 4, fmt::format("reads one to four images, and the task has {}", images));
  want(texts == 1, fmt::format("reads one instruction, int32 of one dimension, and the task has {} (robot tasks: "
                               "env.options.instruction_tokens)",
                               texts));
  try {
    check_config(c);
  } catch (const Error& e) {
    throw Error(fmt::format("policy.model = \"{}\" is not accepted: {}", spec.options.model, e.what()));
  }
  form.train.train = true;
  return form;
}

bool is_in_place(const ModelSpec& spec) { return spec.is_large() && parse_form(spec.options.model).micro_batch > 0; }

std::int64_t cameras_of(const ModelSpec& spec) {
  std::int64_t count = 0;
  for (std::size_t f = 0; f < spec.encoders.size(); ++f) count += reads_image(spec, f);
  return count;
}

std::vector<TensorSlice> vla_slices(const VlaConfig& config, Part part) {
  std::vector<TensorSlice> slices;
  std::size_t offset = 0;
  for (const VlaTensor& t : vla_tensors(config)) {
    if (part_of(t) != part) continue;
    TensorSlice s{(part == Part::kPolicy ? "policy." : "critic.") + t.name, offset, {}};
    s.shape.assign(t.shape.begin(), t.shape.end());
    offset += s.values();
    slices.push_back(std::move(s));
  }
  return slices;
}

}  // namespace gipo
