// Config files. What parses must survive being written and read again; a plan made of it is refused or fits.
#include <string>
#include <vector>

#include "gipo/core/error.h"
#include "gipo/plan/option_table.h"
#include "gipo/plan/plan.h"

std::vector<std::string> valid_inputs() {
  return {gipo::config_to_toml({}),
          "[env]\nid = \"Pendulum-v1\"\ncount = 4\n[policy]\nhidden = [32, 16]\n[run]\nmode = \"async\"\n",
          "env.id = 'Acrobot-v1'\nstaleness = {regime = \"custom\", window = 1e3, env_steps_per_update = 4}\n",
          "[env]\nid = \"Ant-v5\"\n[env.options]\nmain_body = 'torso'\nhealthy_z_range = [0.2, inf]\nframe_skip = 2\n",
          "[staleness]\nregime = \"on_policy\"\n[replay]\ncapacity = 2048\n[advantage]\nmode = \"stored\"\n"};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  gipo::LoadedConfig loaded;
  try {
    loaded = gipo::parse_config({reinterpret_cast<const char*>(data), size}, "fuzz.toml");
  } catch (const gipo::Error&) {
    return 0;
  }
  const std::string written = gipo::config_to_toml(loaded.config);
  GIPO_CHECK(gipo::config_to_toml(gipo::parse_config(written, "written").config) == written);
  try {
    const gipo::Plan plan = gipo::make_plan(loaded);
    GIPO_CHECK(plan.capacity > 0 && plan.total_env_steps() > 0);
  } catch (const gipo::Error&) {
  }
  return 0;
}
