#pragma once

#include <mujoco/mujoco.h>

#include <memory>
#include <string>

#include "gipo/core/error.h"

// The functions of libmujoco that are called, under their own names.
// clang-format off
#define GIPO_MUJOCO_FUNCTIONS(F) \
  F(mj_versionString) F(mj_loadXML) F(mj_deleteModel) F(mj_makeData) F(mj_deleteData) F(mj_resetData) F(mj_forward) \
  F(mj_step) F(mj_rnePostConstraint) F(mj_stateSize) F(mj_getState) F(mj_setState) F(mj_name2id)
// clang-format on

namespace gipo {

struct MujocoApi {
#define GIPO_MUJOCO_MEMBER(f) decltype(&::f) f = nullptr;  // NOLINT(bugprone-macro-parentheses): f is the name
  GIPO_MUJOCO_FUNCTIONS(GIPO_MUJOCO_MEMBER)
#undef GIPO_MUJOCO_MEMBER
};

// What MuJoCo calls an error: by default it would end the process.
class MujocoError : public RunError {
 public:
  using RunError::RunError;
};

// The library, opened on first use and kept: from $GIPO_MUJOCO where that is set, else from the wheel that was there
// when this was built, or, where pip installed this, from the one beside it. Throws Error where it is missing or of
// another version, saying what was found and what mends it. Any thread may call it. Errors of MuJoCo throw MujocoError;
// its warnings stay in mjData, and nothing is printed.
const MujocoApi& mujoco();

// For `gipo --version`: "3.3.0", or why there is none.
std::string mujoco_in_use();

struct MujocoModel {
  MujocoModel(const MujocoApi& api, mjModel* model, std::string checksum);
  ~MujocoModel();
  MujocoModel(const MujocoModel&) = delete;
  MujocoModel& operator=(const MujocoModel&) = delete;

  const MujocoApi& api;
  const mjModel* const m;
  const std::string checksum;  // CRC-32C of the XML
};

// The model of an XML file, one for all who hold it. A plain name is a file of the models folder ($GIPO_MUJOCO_MODELS,
// else that of the gymnasium wheel, of which our own wheel holds a copy); one that begins with . or / is a path. Throws
// Error for a file that is missing or that MuJoCo refuses. Any thread may call it.
std::shared_ptr<const MujocoModel> load_model(const std::string& xml_file);

}  // namespace gipo
