// The manifest of a checkpoint folder that holds one file. An input is tried as the whole manifest, and as its body
// under a checksum that fits, since no fuzzer guesses one.
#include <fmt/format.h>
#include <stdlib.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "gipo/core/error.h"
#include "gipo/io/checksum.h"
#include "gipo/io/files.h"
#include "gipo/io/temporary_folder.h"
#include "gipo/run/checkpoint.h"

namespace {

constexpr const char* kFile = "state.json";

const std::string& checkpoint_path() {
  static const gipo::TemporaryFolder folder(gipo::TemporaryFolder::memory());  // a disk would be most of the time
  static const std::string path = [] {
    gipo::write_checkpoint(folder.path(), {1, {{kFile, "{}"}}}, 1);
    return folder / "000001";
  }();
  return path;
}

void read_with(const std::string& manifest) {
  gipo::write_file_synced(checkpoint_path() + "/manifest.json", manifest);
  try {
    const gipo::Checkpoint checkpoint = gipo::read_checkpoint(checkpoint_path());
    for (const auto& [name, bytes] : checkpoint.files) GIPO_CHECK(name == kFile);
  } catch (const gipo::Error&) {
  }
}

}  // namespace

std::vector<std::string> valid_inputs() {
  const std::string whole = gipo::read_file(checkpoint_path() + "/manifest.json");
  return {whole, nlohmann::ordered_json::parse(whole)["manifest"].dump()};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string body(reinterpret_cast<const char*>(data), size);
  read_with(body);
  read_with(fmt::format("{{\"manifest\":{},\"crc32c\":\"{:08x}\"}}\n", body, gipo::crc32c(body)));
  return 0;
}
