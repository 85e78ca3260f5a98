#include "gipo/vla/vla_checkpoint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "gipo/core/error.h"
#include "gipo/io/bytes.h"
#include "gipo/io/checksum.h"
#include "gipo/io/files.h"
#include "gipo/io/json_text.h"
#include "gipo/vla/vla_model.h"

namespace gipo {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr const char* kIndex = "model.safetensors.index.json";
constexpr const char* kSingle = "model.safetensors";
constexpr std::uint64_t kStateMark = 0x31616c766f706967;  // "gipovla1"
constexpr std::size_t kNamed = 8;                         // tensors that a message names

bool is_float(TensorType type) {
  return type == TensorType::kF32 || type == TensorType::kBF16 || type == TensorType::kF16;
}
std::string in_words(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

std::string listed(const std::vector<std::string>& names) {
  std::vector<std::string> some(names.begin(),
                                names.begin() + static_cast<std::ptrdiff_t>(std::min(names.size(), kNamed)));
  const std::size_t more = names.size() - some.size();
  return fmt::format("{}{}", fmt::join(some, ", "), more > 0 ? fmt::format(" and {} more", more) : "");
}

// timm calls gamma what OpenVLA stores as scale_factor.
std::string alias_of(const std::string& name) {
  constexpr std::string_view kOwn = ".scale_factor";
  return name.ends_with(kOwn) ? name.substr(0, name.size() - kOwn.size()) + ".gamma" : name;
}

bool may_be_absent(VlaPart part) { return part == VlaPart::kProprio || part == VlaPart::kValue; }

TensorSource source_of_model(LargeModel& model, std::size_t index, bool merged) {
  const VlaTensor& t = model.tensors()[index];
  return {t.name, model.tensor_type(), t.shape, [&model, index, merged](ByteWriter& out) {
            model.get_tensor(index, merged, [&out](std::string_view bytes) { out.append(bytes); });
          }};
}

std::uint64_t bytes_of(const TensorSource& t) {
  std::uint64_t bytes = size_of(t.type);
  for (const std::uint64_t d : t.shape) bytes *= d;
  return bytes;
}

void write_tensors(std::vector<TensorSource> tensors, const std::string& path) {
  SyncedFile file(path);
  ByteWriter out([&file](std::string_view bytes) { file.write(bytes); });
  write_safetensors(std::move(tensors), {{"format", "pt"}}, out);
  out.flush();
  file.finish();
}

// Fills a folder beside `folder`, then gives it that name.
void write_folder(const std::string& folder, const std::function<void(const std::string&)>& fill) {
  if (fs::exists(folder)) throw Error(folder + ": is there already");
  const std::string partial = folder + ".partial";
  fs::remove_all(partial);
  make_folder(partial);
  fill(partial);
  sync_folder(partial);
  rename_folder(partial, folder);
}

}  // namespace

VlaCheckpoint::VlaCheckpoint(std::string folder) : folder_(std::move(folder)) {
  const auto path = [&](const std::string& name) { return (fs::path(folder_) / name).string(); };
  config_ = parse_vla_config(read_file(path("config.json"), 64 << 20), path("config.json"));
  std::map<std::string, std::set<std::string>> files;  // and the tensors that the index says are in them
  if (!fs::exists(path(kIndex))) {
    files[kSingle];
  } else {
    const auto index = parse_json<json>(read_file(path(kIndex), 64 << 20), path(kIndex));
    const auto map = index.is_object() ? index.find("weight_map") : index.end();
    if (!index.is_object() || map == index.end() || !map->is_object())
      throw Error(path(kIndex) + ": has no weight_map");
    for (const auto& [name, file] : map->items()) {
      if (!file.is_string() || fs::path(file.get<std::string>()).filename() != file.get<std::string>()) {
        throw Error(
            fmt::format("{}: weight_map: {} is in {}: wanted the name of a file", path(kIndex), name, file.dump()));
      }
      files[file.get<std::string>()].insert(name);
    }
  }
  for (const auto& [name, tensors] : files) {
    files_.push_back(std::make_unique<MappedTensors>(path(name)));
    for (const auto& [tensor, entry] : files_.back()->entries()) {
      if (!shard_of_.emplace(tensor, files_.size() - 1).second) {
        throw Error(fmt::format("{}: {} is in another shard, too", path(name), tensor));
      }
    }
    for (const std::string& tensor : tensors) {
      if (!files_.back()->entries().contains(tensor)) {
        throw Error(fmt::format("{}: {} is not in it, as {} says", path(name), tensor, kIndex));
      }
    }
  }
}

std::optional<VlaCheckpoint::Found> VlaCheckpoint::find(const std::string& name) const {
  auto found = shard_of_.find(name);
  if (found == shard_of_.end()) found = shard_of_.find(alias_of(name));
  if (found == shard_of_.end()) return std::nullopt;
  const MappedTensors& file = *files_[found->second];
  return Found{&file, &file.entries().at(found->first)};
}

void VlaCheckpoint::check() const {
  std::vector<std::string> missing, extra, wrong;
  std::map<VlaPart, std::vector<std::string>> absent, present;
  std::set<std::string> known;
  for (const VlaTensor& t : vla_tensors(config_)) {
    known.insert({t.name, alias_of(t.name)});
    const auto found = find(t.name);
    (found ? present : absent)[t.part].push_back(t.name);
    if (!found) continue;
    if (!is_float(found->entry->type)) {
      wrong.push_back(fmt::format("{} ({}, wanted BF16, F16 or F32)", t.name, name_of(found->entry->type)));
    } else if (found->entry->shape != t.shape) {
      wrong.push_back(fmt::format("{} ({}, wanted {})", t.name, in_words(found->entry->shape), in_words(t.shape)));
    }
  }
  for (const auto& [part, names] : absent) {
    if (!may_be_absent(part) || present.contains(part)) missing.insert(missing.end(), names.begin(), names.end());
  }
  for (const auto& [name, shard] : shard_of_) {
    if (!known.contains(name) && !is_unused_tensor(config_, name)) extra.push_back(name);
  }
  std::vector<std::string> parts;
  if (!missing.empty()) parts.push_back("missing: " + listed(missing));
  if (!extra.empty()) parts.push_back("not known: " + listed(extra));
  if (!wrong.empty()) parts.push_back("of another shape: " + listed(wrong));
  if (!parts.empty()) throw Error(fmt::format("{}: tensors {}", folder_, fmt::join(parts, "; ")));
}

void VlaCheckpoint::load(LargeModel& model) const {
  check();
  for (std::size_t i = 0; i < model.tensors().size(); ++i) {
    const VlaTensor& t = model.tensors()[i];
    const auto found = t.part == VlaPart::kAdapter ? std::nullopt : find(t.name);
    if (!found) continue;
    if (found->entry->shape != t.shape) {
      throw Error(fmt::format("{}: {} is {} where the model has {}", folder_, t.name, in_words(found->entry->shape),
                              in_words(t.shape)));
    }
    model.set_tensor(i, found->entry->type, found->file->bytes(*found->entry));
    found->file->release(*found->entry);
  }
}

void write_vla_checkpoint(LargeModel& model, const std::string& folder, const VlaWriting& how) {
  std::vector<TensorSource> tensors;
  for (std::size_t i = 0; i < model.tensors().size(); ++i) {
    if (model.tensors()[i].part != VlaPart::kAdapter) tensors.push_back(source_of_model(model, i, how.merged));
  }
  for (const auto& [name, shard] :
       how.source != nullptr ? how.source->shards() : std::map<std::string, std::size_t>()) {
    if (!is_unused_tensor(how.source->config(), name)) continue;
    const auto found = how.source->find(name).value();
    tensors.push_back({name, found.entry->type, found.entry->shape,
                       [found](ByteWriter& out) { out.append(found.file->bytes(*found.entry)); }});
  }
  std::vector<std::vector<TensorSource>> shards;
  std::uint64_t total = 0, filled = how.shard_bytes;
  for (TensorSource& t : tensors) {
    const std::uint64_t bytes = bytes_of(t);
    if (shards.empty() || filled + bytes > how.shard_bytes) {
      shards.emplace_back();
      filled = 0;
    }
    filled += bytes, total += bytes;
    shards.back().push_back(std::move(t));
  }
  write_folder(folder, [&](const std::string& partial) {
    json map = json::object();
    for (std::size_t i = 0; i < shards.size(); ++i) {
      const std::string name = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
      for (const TensorSource& t : shards[i]) map[t.name] = name;
      write_tensors(std::move(shards[i]), (fs::path(partial) / name).string());
    }
    const json index{{"metadata", {{"total_size", total}}}, {"weight_map", map}};
    write_file_synced((fs::path(partial) / kIndex).string(), index.dump(2) + "\n");
    write_file_synced((fs::path(partial) / "config.json").string(), vla_config_text(model.setup().config));
  });
}

void write_adapters(LargeModel& model, const std::string& folder) {
  const LoraConfig& lora = model.setup().train.lora;
  if (lora.rank == 0) throw Error("the model has no adapters to write");
  std::vector<TensorSource> tensors;
  for (std::size_t i = 0; i < model.tensors().size(); ++i) {
    if (model.tensors()[i].part == VlaPart::kAdapter) tensors.push_back(source_of_model(model, i, false));
  }
  write_folder(folder, [&](const std::string& partial) {
    write_tensors(std::move(tensors), (fs::path(partial) / "adapter_model.safetensors").string());
    const json config{
        {"peft_type", "LORA"},
        {"r", lora.rank},
        {"lora_alpha", lora.scale() * static_cast<double>(lora.rank)},
        {"lora_dropout", 0.0},
        {"bias", "none"},
        {"target_modules", {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}}};
    write_file_synced((fs::path(partial) / "adapter_config.json").string(), config.dump(2) + "\n");
  });
}

void load_adapters(LargeModel& model, const std::string& folder) {
  const LoraConfig& lora = model.setup().train.lora;
  const std::string config_path = (fs::path(folder) / "adapter_config.json").string();
  const auto config = parse_json<json>(read_file(config_path, 1 << 20), config_path);
  const std::int64_t rank = config.value("r", std::int64_t{0});
  const double scale = rank > 0 ? config.value("lora_alpha", 0.0) / static_cast<double>(rank) : 0;
  if (rank != lora.rank || scale != lora.scale()) {
    throw Error(fmt::format("{}: rank {} and scale {}: the model has {} and {}", config_path, rank, scale, lora.rank,
                            lora.scale()));
  }
  const MappedTensors file((fs::path(folder) / "adapter_model.safetensors").string());
  std::size_t taken = 0;
  std::vector<std::string> missing;
  for (std::size_t i = 0; i < model.tensors().size(); ++i) {
    const VlaTensor& t = model.tensors()[i];
    if (t.part != VlaPart::kAdapter) continue;
    const auto found = file.entries().find(t.name);
    if (found == file.entries().end() || found->second.shape != t.shape || !is_float(found->second.type)) {
      missing.push_back(fmt::format("{} {}", t.name, in_words(t.shape)));
      continue;
    }
    model.set_tensor(i, found->second.type, file.bytes(found->second));
    ++taken;
  }
  if (!missing.empty()) throw Error(fmt::format("{}: missing or of another shape: {}", file.path(), listed(missing)));
  if (taken != file.entries().size()) throw Error(file.path() + ": holds tensors that are no adapters of this model");
}

void write_training_state(LargeModel& model, const std::string& path) {
  SyncedFile file(path);
  std::uint32_t sum = 0;
  file.write({reinterpret_cast<const char*>(&kStateMark), sizeof kStateMark});
  model.save_state([&](std::string_view bytes) {
    file.write(bytes);
    sum = crc32c(bytes, sum);
  });
  file.write({reinterpret_cast<const char*>(&sum), sizeof sum});
  file.finish();
}

void load_training_state(LargeModel& model, const std::string& path) {
  FileReader file(path);
  std::uint64_t mark = 0;
  file.read(reinterpret_cast<char*>(&mark), sizeof mark);
  if (mark != kStateMark) throw Error(path + ": is no state of a large model's training");
  std::uint32_t sum = 0;
  model.load_state([&](char* out, std::size_t size) {
    file.read(out, size);
    sum = crc32c({out, size}, sum);
  });
  std::uint32_t value = 0;
  file.read(reinterpret_cast<char*>(&value), sizeof value);
  char more = 0;
  if (value != sum || file.read_some(&more, 1) != 0) throw Error(path + ": its checksum does not fit");
}

}  // namespace gipo
