#include "gipo/env/mujoco/library.h"

#include <dlfcn.h>
#include <elf.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <vector>

#include "gipo/core/python.h"
#include "gipo/io/checksum.h"
#include "gipo/io/files.h"

// CMake defines these for this file alone: the pinned versions, the pip that installs them, and where the wheels lay
// when it was configured: empty where pip built this in an environment that is gone.
#if !defined(GIPO_MUJOCO_VERSION) || !defined(GIPO_GYMNASIUM_VERSION) || !defined(GIPO_MUJOCO_DIR) || \
    !defined(GIPO_MUJOCO_MODELS) || !defined(GIPO_PIP)
#error "the paths and versions of MuJoCo are not defined"
#endif

namespace gipo {
namespace {

namespace fs = std::filesystem;

constexpr const char* kVersion = GIPO_MUJOCO_VERSION;

// Where pip has installed this: the site-packages of the module gipo/_core, or of the program in bin/.
std::vector<fs::path> own_packages() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&mujoco), &info) == 0 || !info.dli_fname) return {};
  const fs::path own = info.dli_fname;
  if (own.filename().string().starts_with("_core.")) return {own.parent_path().parent_path()};
  std::vector<fs::path> places;
  std::error_code ignored;
  const fs::path program = own_path();
  for (const auto& entry : fs::directory_iterator(program.parent_path().parent_path() / "lib", ignored)) {
    if (entry.path().filename().string().starts_with("python3")) places.push_back(entry.path() / "site-packages");
  }
  return places;
}

// The variable of the environment, else the folder as it was when this was built, else that of our own installation.
std::string find_folder(const char* variable, const std::string& built, const char* installed) {
  if (const char* value = std::getenv(variable); value && *value) return value;
  if (!built.empty()) return built;
  std::error_code ignored;
  for (const fs::path& packages : own_packages()) {
    if (fs::is_directory(packages / installed, ignored)) return (packages / installed).string();
  }
  return installed;
}

std::string mended_by(const char* package, const char* version) {
  return fmt::format("`{} install --force-reinstall --no-deps {}=={}`", GIPO_PIP, package, version);
}

[[noreturn]] void refuse_library(const std::string& found) {
  throw Error(fmt::format("MuJoCo {} is wanted, but {}; {} installs it, or set GIPO_MUJOCO to the folder that holds it",
                          kVersion, found, mended_by("mujoco", kVersion)));
}

// The library itself where a folder is named.
std::string library_path() {
  std::string place = find_folder("GIPO_MUJOCO", GIPO_MUJOCO_DIR, "mujoco");
  std::error_code ignored;
  if (fs::is_regular_file(place, ignored)) return place;
  std::string path = fmt::format("{}/libmujoco.so.{}", place, kVersion);
  if (fs::exists(path, ignored)) return path;

  if (!fs::is_directory(place, ignored)) refuse_library(fmt::format("there is no {}", place));
  std::vector<std::string> others;
  for (const fs::directory_entry& entry : fs::directory_iterator(place, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("libmujoco")) others.push_back(name);
  }
  std::sort(others.begin(), others.end());
  refuse_library(
      fmt::format("{} holds {}", place, others.empty() ? "no libmujoco" : fmt::to_string(fmt::join(others, ", "))));
}

// A file that was cut off would end the process while it is opened: its last part is the table of sections.
bool is_whole(const std::string& path) {
  Elf64_Ehdr header{};
  std::ifstream in(path, std::ios::binary);
  if (!in.read(reinterpret_cast<char*>(&header), sizeof header)) return false;
  return fs::file_size(path) >= header.e_shoff + std::size_t{header.e_shentsize} * header.e_shnum;
}

void* symbol(void* library, const std::string& path, const char* name) {
  void* found = dlsym(library, name);
  if (!found) refuse_library(fmt::format("{} has no {}", path, name));
  return found;
}

// C code of MuJoCo lies between the throw and the catch: it holds nothing that would need to be destroyed, and both
// supported architectures keep unwind tables for it.
[[noreturn]] void throw_error(const char* text) { throw MujocoError(fmt::format("MuJoCo: {}", text)); }
void ignore_warning(const char*) {}

MujocoApi open_library() {
  const std::string path = library_path();
  if (!is_whole(path)) refuse_library(fmt::format("{} is cut off", path));
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) refuse_library(fmt::format("{} cannot be opened: {}", path, dlerror()));

  MujocoApi api;
  // The version first: another may lack what follows.
  api.mj_versionString = reinterpret_cast<decltype(api.mj_versionString)>(symbol(library, path, "mj_versionString"));
  const std::string version = api.mj_versionString();
  if (version != kVersion) refuse_library(fmt::format("{} is {}", path, version));
#define GIPO_MUJOCO_FIND(f) api.f = reinterpret_cast<decltype(api.f)>(symbol(library, path, #f));
  GIPO_MUJOCO_FUNCTIONS(GIPO_MUJOCO_FIND)
#undef GIPO_MUJOCO_FIND
  using Handler = void (*)(const char*);
  *static_cast<Handler*>(symbol(library, path, "mju_user_error")) = throw_error;
  *static_cast<Handler*>(symbol(library, path, "mju_user_warning")) = ignore_warning;
  return api;
}

bool is_path(const std::string& xml_file) { return xml_file.starts_with(".") || xml_file.starts_with("/"); }

std::string model_path(const std::string& xml_file) {
  if (is_path(xml_file)) return xml_file;
  return find_folder("GIPO_MUJOCO_MODELS", GIPO_MUJOCO_MODELS, "gipo/mujoco_models") + "/" + xml_file;
}

[[noreturn]] void refuse_model(const std::string& xml_file, const std::string& found) {
  const std::string remedy = is_path(xml_file)
                                 ? "leave env.options.xml_file out for the task's own"
                                 : mended_by("gymnasium", GIPO_GYMNASIUM_VERSION) +
                                       " installs the models of Gymnasium, or set GIPO_MUJOCO_MODELS to their folder";
  throw Error(fmt::format("the model {} {}; {}", model_path(xml_file), found, remedy));
}

std::shared_ptr<const MujocoModel> compile(const std::string& xml_file) {
  const MujocoApi& api = mujoco();
  const std::string path = model_path(xml_file);
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) refuse_model(xml_file, "is not there");
  const std::string text = read_file(path);

  std::array<char, 1024> error{};
  mjModel* model = nullptr;
  try {
    model = api.mj_loadXML(path.c_str(), nullptr, error.data(), static_cast<int>(error.size()));
  } catch (const MujocoError& e) {
    refuse_model(xml_file, fmt::format("is refused: {}", e.what()));
  }
  if (!model) {
    std::string why = error.data();
    std::replace(why.begin(), why.end(), '\n', ' ');
    refuse_model(xml_file, fmt::format("is refused by MuJoCo {}: {}", kVersion, why));
  }
  return std::make_shared<const MujocoModel>(api, model, fmt::format("{:08x}", crc32c(text)));
}

}  // namespace

const MujocoApi& mujoco() {
  static_assert(mjVERSION_HEADER == 330, "the headers are not those of the pinned version");
  static const MujocoApi api = open_library();  // tried again where it throws
  return api;
}

std::string mujoco_in_use() {
  try {
    return mujoco().mj_versionString();
  } catch (const Error& e) {
    return fmt::format("none: {}", e.what());
  }
}

MujocoModel::MujocoModel(const MujocoApi& a, mjModel* model, std::string sum)
    : api(a), m(model), checksum(std::move(sum)) {}

MujocoModel::~MujocoModel() { api.mj_deleteModel(const_cast<mjModel*>(m)); }

std::shared_ptr<const MujocoModel> load_model(const std::string& xml_file) {
  static std::mutex mutex;
  static std::map<std::string, std::weak_ptr<const MujocoModel>> known;  // by path
  const std::string path = model_path(xml_file);
  const std::lock_guard lock(mutex);
  if (std::shared_ptr<const MujocoModel> model = known[path].lock()) return model;
  std::shared_ptr<const MujocoModel> model = compile(xml_file);
  known[path] = model;
  return model;
}

}  // namespace gipo
