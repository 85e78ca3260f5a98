#include "gipo/run/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "gipo/core/error.h"
#include "gipo/io/bytes.h"
#include "gipo/io/checksum.h"
#include "gipo/io/files.h"

namespace gipo {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int kFormat = 6;
constexpr const char* kManifest = "manifest.json";
constexpr std::uint64_t kMostManifestBytes = 64 * 1024;
constexpr int kMostManifestDepth = 8;
constexpr const char* kState = "state.json";
constexpr std::uint64_t kMostStateBytes = 1024 * 1024;  // beyond it nothing is kept: it is none

std::string folder_name(std::int64_t update) { return fmt::format("{:06}", update); }

// The manifest of a checkpoint: sizes and checksums of its files, and a checksum of itself. There is one way to write a
// manifest, so a reader that finds any other bytes knows that they are damaged.
std::string render_manifest(std::int64_t update, const Json& files) {
  const Json body = {{"format", kFormat}, {"update", update}, {"files", files}};
  const Json manifest = {{"manifest", body}, {"crc32c", fmt::format("{:08x}", crc32c(body.dump()))}};
  return manifest.dump() + "\n";
}

Json describe(std::uint64_t size, std::uint32_t crc) {
  return {{"size", size}, {"crc32c", fmt::format("{:08x}", crc)}};
}

// A file that is written piece by piece.
class StreamedFile {
 public:
  StreamedFile(const std::string& path, const std::function<void(ByteWriter&)>& save) : file_(path) {
    ByteWriter out([this](std::string_view block) {
      file_.write(block);
      size_ += block.size();
      crc_ = crc32c(block, crc_);
    });
    save(out);
    out.flush();
  }
  // On disk, and what the manifest says of it.
  Json finish() {
    file_.finish();
    return describe(size_, crc_);
  }

 private:
  SyncedFile file_;
  std::uint64_t size_ = 0;
  std::uint32_t crc_ = 0;
};

// All files but the manifest, and what it says of them. Someone waits for those of `still`; of the others the streams
// come first: a replay that goes on has to keep for it what it evicts.
Json write_files(const fs::path& folder, const Checkpoint& checkpoint, const std::function<void()>& still_written) {
  std::map<std::string, Json> described;  // in the order of their names
  std::map<std::string, std::unique_ptr<StreamedFile>> still;
  for (const auto& [file, save] : checkpoint.still) {
    still[file] = std::make_unique<StreamedFile>((folder / file).string(), save);
  }
  still_written();
  for (const auto& [file, save] : checkpoint.streams) {
    described[file] = StreamedFile((folder / file).string(), save).finish();
  }
  for (const auto& [file, written] : still) described[file] = written->finish();
  for (const auto& [file, bytes] : checkpoint.files) {
    write_file_synced((folder / file).string(), bytes);
    described[file] = describe(bytes.size(), crc32c(bytes));
  }
  Json files = Json::object();
  for (auto& [file, description] : described) files[file] = std::move(description);
  return files;
}

std::uint32_t crc_of_file(const std::string& path) {
  FileReader file(path);
  std::array<char, 64 * 1024> block;
  std::uint32_t crc = 0;
  while (const std::size_t n = file.read_some(block.data(), block.size())) crc = crc32c({block.data(), n}, crc);
  return crc;
}

// Removes the manifest first: what is left by a crash in the middle is then plainly not a checkpoint.
void remove_checkpoint(const fs::path& path) {
  std::error_code ignored;
  fs::remove(path / kManifest, ignored);
  fs::remove_all(path, ignored);
}

// What a crash left of an earlier write: one process writes at a time.
void remove_temporaries(const std::string& folder) {
  std::error_code ignored;
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (entry.path().extension() == ".tmp") found.push_back(entry.path());
  }
  for (const fs::path& path : found) fs::remove_all(path, ignored);
}

std::optional<std::int64_t> number_of(const std::string& name) {
  if (name.size() < 6 || name.size() > 18 || name.find_first_not_of("0123456789") != std::string::npos) return {};
  return std::stoll(name);
}

}  // namespace

std::vector<std::int64_t> list_checkpoints(const std::string& folder) {
  std::vector<std::int64_t> numbers;
  std::error_code failed;
  for (fs::directory_iterator it(folder, failed), end; !failed && it != end; it.increment(failed)) {
    if (const auto number = number_of(it->path().filename().string())) numbers.push_back(*number);
  }
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

void write_checkpoint(const std::string& folder, const Checkpoint& checkpoint, std::int64_t keep,
                      const std::function<void()>& still_written) {
  const std::string name = folder_name(checkpoint.update);
  const fs::path final_path = fs::path(folder) / name, temporary = fs::path(folder) / (name + ".tmp");
  try {
    make_folder(folder);
    remove_temporaries(folder);
    make_folder(temporary.string());
    const Json files = write_files(temporary, checkpoint, still_written);
    for (const std::string& log : checkpoint.logs) sync_file(log);
    write_file_synced((temporary / kManifest).string(), render_manifest(checkpoint.update, files));
    sync_folder(temporary.string());
    if (fs::exists(final_path)) {
      // The same update again: exchanged, so that at no moment there is neither.
      exchange_folders(temporary.string(), final_path.string());
      remove_checkpoint(temporary);
    } else {
      rename_folder(temporary.string(), final_path.string());
    }
    write_file_atomic(folder + "/LATEST", name + "\n");
  } catch (const std::exception&) {
    std::error_code ignored;
    fs::remove_all(temporary, ignored);
    throw;
  }
  std::vector<std::int64_t> numbers = list_checkpoints(folder);
  std::erase_if(numbers, [&](std::int64_t n) { return n >= checkpoint.update; });
  for (std::size_t i = 0; i + static_cast<std::size_t>(keep) <= numbers.size(); ++i) {
    remove_checkpoint(fs::path(folder) / folder_name(numbers[i]));
  }
}

void Checkpoint::load(const std::string& name, const std::function<void(ByteReader&)>& f) const {
  const auto refuse = [&](const std::string& why) { throw Error(fmt::format("checkpoint {}: {}", update, why)); };
  if (!has(name)) refuse("it has no " + name);
  const auto read = [&](ByteReader in) {
    try {
      f(in);
    } catch (const Error& e) {
      refuse(fmt::format("{}: {}", name, e.what()));
    }
    if (in.left() > 0) refuse(name + " is too long");
  };
  if (files.contains(name)) return read(ByteReader(files.at(name)));
  FileReader file(path + "/" + name);
  read(ByteReader(sizes.at(name), [&](char* out, std::size_t size) { file.read(out, size); }));
}

Checkpoint read_checkpoint(const std::string& path) {
  Checkpoint checkpoint = find_checkpoint(path);
  for (const auto& [name, size] : checkpoint.sizes) {
    checkpoint.files[name] = read_file(fmt::format("{}/{}", path, name), size);
  }
  return checkpoint;
}

Checkpoint find_checkpoint(const std::string& path) {
  const auto damaged = [&](const std::string& why) { throw Error(fmt::format("{}: {}", path, why)); };
  const std::string manifest_path = path + "/" + kManifest;
  std::error_code failed;
  const auto manifest_size = fs::file_size(manifest_path, failed);
  if (failed) damaged("it has no manifest.json");
  if (manifest_size > kMostManifestBytes) damaged("manifest.json is too large to be one");
  const std::string text = read_file(manifest_path, kMostManifestBytes);
  // Copying or writing a value that is nested too deep would take the stack with it.
  const auto shallow = [&](int depth, Json::parse_event_t, const Json&) {
    if (depth > kMostManifestDepth) damaged("manifest.json is not a manifest");
    return true;
  };
  const Json manifest = Json::parse(text, shallow, false);
  Checkpoint checkpoint;
  checkpoint.path = path;
  Json files;
  try {
    const Json& body = manifest.at("manifest");
    if (body.at("format") != kFormat) {
      damaged(fmt::format("its format is {}, this program reads {}", body.at("format").dump(), kFormat));
    }
    if (!body.at("update").is_number_integer()) damaged("manifest.json is not a manifest");
    checkpoint.update = body.at("update").get<std::int64_t>();
    files = body.at("files");
    if (render_manifest(checkpoint.update, files) != text) damaged("manifest.json does not match its own checksum");
    for (const auto& [name, entry] : files.items()) {
      if (name.find_first_of(std::string_view("/\0", 2)) != std::string::npos || name == kManifest) {
        damaged("manifest.json names a file that is not one of a checkpoint's");
      }
      const std::string file = fmt::format("{}/{}", path, name);
      const auto size = fs::file_size(file, failed);
      if (failed) damaged(fmt::format("{} is missing", name));
      if (size != entry.at("size").get<std::uint64_t>()) {
        damaged(fmt::format("{} has {} bytes, {} were written", name, size, entry.at("size").dump()));
      }
      if (describe(size, crc_of_file(file)) != entry) damaged(fmt::format("{} does not match its checksum", name));
      checkpoint.sizes[name] = size;
    }
    const auto state = checkpoint.sizes.find(kState);
    if (state != checkpoint.sizes.end() && state->second <= kMostStateBytes) {
      checkpoint.files[kState] = read_file(path + "/" + kState, kMostStateBytes);
    }
  } catch (const nlohmann::json::exception&) {
    damaged("manifest.json is not a manifest");
  }
  return checkpoint;
}

std::optional<Checkpoint> newest_checkpoint(const std::string& folder, std::vector<std::string>& passed_over,
                                            const std::function<void(const Checkpoint&)>& check) {
  std::vector<std::int64_t> numbers = list_checkpoints(folder);
  for (std::size_t i = numbers.size(); i-- > 0;) {
    const std::string path = folder + "/" + folder_name(numbers[i]);
    try {
      Checkpoint checkpoint = find_checkpoint(path);
      if (checkpoint.update != numbers[i]) throw Error(path + ": it is the checkpoint of another update");
      check(checkpoint);
      return checkpoint;
    } catch (const Error& e) {
      passed_over.push_back(fmt::format("checkpoint passed over: {}", e.what()));
    }
  }
  return std::nullopt;
}

CheckpointWriter::CheckpointWriter(std::string folder, std::int64_t keep)
    : folder_(std::move(folder)), keep_(keep), thread_([this] { serve(); }) {}

CheckpointWriter::~CheckpointWriter() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

bool CheckpointWriter::idle() {
  const std::lock_guard lock(mutex_);
  return !waiting_ && !writing_;
}

void CheckpointWriter::submit(Checkpoint checkpoint) {
  finish();
  std::unique_lock lock(mutex_);
  still_ = !checkpoint.still.empty();
  waiting_ = std::move(checkpoint);
  changed_.notify_all();
  changed_.wait(lock, [&] { return !still_; });
}

void CheckpointWriter::finish() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !waiting_ && !writing_; });
}

std::vector<std::string> CheckpointWriter::take_warnings() {
  const std::lock_guard lock(mutex_);
  return std::exchange(warnings_, {});
}

void CheckpointWriter::serve() {
  const auto still_written = [this] {
    {
      const std::lock_guard lock(mutex_);
      still_ = false;
    }
    changed_.notify_all();
  };
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stopping_ || waiting_; });
    if (!waiting_) return;
    std::optional<Checkpoint> next = std::exchange(waiting_, std::nullopt);
    writing_ = true;
    lock.unlock();
    std::string warning;
    try {
      write_checkpoint(folder_, *next, keep_, still_written);
      if (next->written) next->written();
    } catch (const std::exception& e) {
      warning = fmt::format("checkpoint {} was not written: {}; training goes on, the one before stays", next->update,
                            e.what());
    }
    next.reset();  // its memory is free before the next is made
    lock.lock();
    writing_ = still_ = false;
    if (!warning.empty()) warnings_.push_back(std::move(warning));
    changed_.notify_all();
  }
}

}  // namespace gipo
