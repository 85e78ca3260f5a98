#include "gipo/cli/launcher.h"

#include <map>
#include <nlohmann/json.hpp>

#include "gipo/bench/clock.h"
#include "gipo/cli/python.h"
#include "gipo/core/error.h"
#include "gipo/core/python.h"

namespace gipo::cli {
namespace {

using Json = nlohmann::ordered_json;

// Runs on the nodes of a Ray cluster, which gipo.ray_suite speaks to. Lines of JSON; python/gipo/ray_suite.py has them.
class RayLauncher final : public RunLauncher {
 public:
  int room() override {
    connect();
    return room_;
  }
  pid_t start(const std::vector<std::string>& arguments, const std::string& output_path) override {
    connect();
    peer_->write_line(Json({{"start", ++last_}, {"words", arguments}, {"output", output_path}}).dump());
    return last_;
  }
  std::optional<End> ended(pid_t run) override {
    while (const std::optional<std::string> line = peer_->read_line(false)) {
      const Json said = Json::parse(*line);
      End& end = ended_[said.at("ended").get<pid_t>()];
      if (const int code = said.at("code").get<int>(); code >= 0) end.code = code;
      end.why = said.value("why", "");
    }
    const auto found = ended_.find(run);
    if (found == ended_.end()) return std::nullopt;
    End end = found->second;
    ended_.erase(found);
    return end;
  }
  void interrupt(pid_t run) override { peer_->write_line(Json({{"interrupt", run}}).dump()); }
  void kill(pid_t run) override { peer_->write_line(Json({{"kill", run}}).dump()); }

 private:
  void connect() {
    if (peer_) return;
    auto peer = std::make_unique<PythonPeer>("gipo.ray_suite", std::vector<std::string>{});
    const Json said = Json::parse(*peer->read_line(true));
    if (said.contains("mistake")) throw Error(said.at("mistake").get<std::string>());
    room_ = said.at("room").get<int>();
    peer_ = std::move(peer);
  }

  std::unique_ptr<PythonPeer> peer_;
  int room_ = 1;
  pid_t last_ = 0;
  std::map<pid_t, End> ended_;
};

}  // namespace

Trainers::Trainers(bool ray, const std::string& device) : start_(steady_time()) {
  if (ray) {
    launcher_ = std::make_unique<RayLauncher>();
  } else {
    launcher_ = std::make_unique<LocalLauncher>(own_path());
  }
  if (device == "cuda") card_ = population::make_cuda_engine();
}

RunnerOptions Trainers::options(int jobs, bool retry) const {
  const double start = start_;
  return {*launcher_, jobs, retry, card_.get(), [start] { return steady_time() - start; }, wall_time};
}

}  // namespace gipo::cli
