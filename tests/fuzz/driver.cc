// Runs one fuzz target without libFuzzer: over its valid inputs, the files of its corpus, and a fixed number of
// mutations of both, the same in every run. So each change of the program meets hostile input in the ordinary tests.
//   gipo_fuzz TARGET CORPUS-FOLDER MUTATIONS
#include <sanitizer/common_interface_defs.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "gipo/core/random.h"
#include "gipo/io/files.h"

#define GIPO_FUZZ_TARGETS(X) \
  X(actor)                   \
  X(checkpoint)              \
  X(config) X(learner) X(override) X(replay) X(report) X(resume) X(safetensors) X(segment) X(suite) X(wire)

#define X(name)                                                 \
  extern "C" int fuzz_##name(const std::uint8_t*, std::size_t); \
  std::vector<std::string> valid_inputs_##name();
GIPO_FUZZ_TARGETS(X)
#undef X

// The limit on any single allocation, as `make fuzz` sets it.
extern "C" const char* __asan_default_options() { return "max_allocation_size_mb=64"; }

namespace {

constexpr double kMostSeconds = 5;  // for one input

struct Target {
  std::string name;
  int (*run)(const std::uint8_t*, std::size_t);
  std::vector<std::string> (*valid_inputs)();
};
#define X(name) {#name, fuzz_##name, valid_inputs_##name},
const std::vector<Target> kTargets = {GIPO_FUZZ_TARGETS(X)};
#undef X

// What to show when the process dies: the input under way.
std::string current, current_path;

void keep_input() {
  gipo::write_file_atomic(current_path, current);
  std::fprintf(stderr, "gipo_fuzz: the input is in %s\n", current_path.c_str());
}

// One of the changes that find most: a bit, a byte or a length, and pieces lost, doubled or put together.
void mutate(std::string& s, const std::string& other, gipo::RandomStream& random) {
  constexpr std::uint64_t kNumbers[] = {0,
                                        1,
                                        2,
                                        0x7f,
                                        0xff,
                                        0xffff,
                                        1ull << 31,
                                        1ull << 62,
                                        ~0ull >> 1,
                                        1ull << 63,
                                        ~0ull,
                                        0x7ff0000000000000ull,
                                        0x7ff8000000000000ull,
                                        0x7fefffffffffffffull,
                                        0x7f8000007fc00000ull};
  const auto place = [&](std::size_t size) { return static_cast<std::size_t>(random.below(size + 1)); };
  const std::size_t at = place(s.size()), length = std::min(place(16), s.size() - at);
  switch (random.below(7)) {
    case 0:
      if (at < s.size()) s[at] = static_cast<char>(s[at] ^ (1 << random.below(8)));
      break;
    case 1:
      if (at < s.size()) s[at] = static_cast<char>(random.below(256));
      break;
    case 2: {  // where a number may stand, whole or cut
      const std::uint64_t number = kNumbers[random.below(std::size(kNumbers))];
      s.replace(at, std::min<std::size_t>(8, s.size() - at), reinterpret_cast<const char*>(&number), 8);
      break;
    }
    case 3:
      s.erase(at, length);
      break;
    case 4:
      s.insert(place(s.size()), s.substr(at, length));
      break;
    case 5:
      s.resize(at);
      break;
    default:
      s.replace(at, std::string::npos, other, std::min(at, other.size()), std::string::npos);
  }
}

bool run_one(const Target& target) {
  const auto start = std::chrono::steady_clock::now();
  try {
    // A copy of the exact size, so that the sanitizer sees one byte too far.
    const std::vector<std::uint8_t> bytes(current.begin(), current.end());
    target.run(bytes.data(), bytes.size());
  } catch (const std::exception& e) {
    std::fprintf(stderr, "gipo_fuzz: %s: %s\n", target.name.c_str(), e.what());
    return false;
  }
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  if (taken.count() <= kMostSeconds) return true;
  std::fprintf(stderr, "gipo_fuzz: %s: one input took %.1f s\n", target.name.c_str(), taken.count());
  return false;
}

std::vector<std::string> read_corpus(const std::string& folder) {
  std::vector<std::string> paths, inputs;
  if (!std::filesystem::exists(folder)) return inputs;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) paths.push_back(entry.path().string());
  std::sort(paths.begin(), paths.end());
  for (const std::string& path : paths) inputs.push_back(gipo::read_file(path));
  return inputs;
}

int fuzz(const Target& target, const std::string& corpus, std::uint64_t mutations) {
  std::vector<std::string> inputs = target.valid_inputs();
  for (std::string& input : read_corpus(corpus)) inputs.push_back(std::move(input));
  current_path = "fuzz-" + target.name + ".input";
  __sanitizer_set_death_callback(keep_input);
  gipo::RandomStream random(1);
  for (std::uint64_t i = 0; i < inputs.size() + mutations; ++i) {
    current = inputs[i < inputs.size() ? i : random.below(inputs.size())];
    if (i >= inputs.size()) {
      for (std::uint64_t n = random.below(4); n < 4; ++n) mutate(current, inputs[random.below(inputs.size())], random);
    }
    if (!run_one(target)) return keep_input(), 1;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const auto target =
      std::find_if(kTargets.begin(), kTargets.end(), [&](const Target& t) { return argc == 4 && t.name == argv[1]; });
  if (target == kTargets.end()) {
    std::fprintf(stderr, "gipo_fuzz TARGET CORPUS-FOLDER MUTATIONS\n");
    return 2;
  }
  return fuzz(*target, argv[2], std::strtoull(argv[3], nullptr, 10));
}
