#include "gipo/cli/ranks.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <thread>

#include "gipo/cli/commands.h"
#include "gipo/core/python.h"
#include "gipo/io/files.h"
#include "gipo/policy/torch_policy.h"
#include "gipo/run/checkpoint.h"
#include "gipo/run/run_folder.h"

namespace gipo::cli {
namespace {

constexpr int kMostLosses = 3;  // in a row, without a new checkpoint between them
constexpr std::chrono::seconds kLeave(10);

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value ? value : "";
}

int number(const char* name, int least, int most) {
  const std::string text = variable(name);
  int value = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (fault != std::errc() || end != text.data() + text.size() || value < least || value > most) {
    throw Error(fmt::format("{} = \"{}\" is not accepted in the environment: wanted a number from {} to {}", name, text,
                            least, most));
  }
  return value;
}

std::atomic<int> signals_heard{0};
extern "C" void count_signal(int) { ++signals_heard; }

// One start of all ranks.
class RankProcesses {
 public:
  RankProcesses(int ranks, const Words& words) : host_(host_ranks()) {
    for (int r = 0; r < ranks; ++r) children_.push_back({start(r, ranks, words), std::nullopt});
  }
  ~RankProcesses() {
    for (const Child& c : children_) {
      if (!c.status) ::kill(c.pid, SIGKILL);
    }
    for (const Child& c : children_) {
      if (!c.status) ::waitpid(c.pid, nullptr, 0);
    }
  }
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;

  void signal_first(int signal) const {
    if (!children_[0].status) ::kill(children_[0].pid, signal);
  }

  // Looks who has ended.
  void look() {
    for (Child& c : children_) {
      int status = 0;
      if (!c.status && ::waitpid(c.pid, &status, WNOHANG) == c.pid) c.status = status;
    }
  }
  std::optional<int> code_of_first() const {
    if (!children_[0].status || !WIFEXITED(*children_[0].status)) return std::nullopt;
    return WEXITSTATUS(*children_[0].status);
  }
  bool first_ended() const { return children_[0].status.has_value(); }
  bool all_ended() const {
    return std::ranges::all_of(children_, [](const Child& c) { return c.status.has_value(); });
  }
  // A rank that has ended as none should, in words; empty: none.
  std::string lost() const {
    for (std::size_t r = 0; r < children_.size(); ++r) {
      const std::optional<int>& status = children_[r].status;
      if (!status || *status == 0 || (r == 0 && WIFEXITED(*status))) continue;
      return fmt::format("rank {} of {} {}", r, children_.size(),
                         WIFSIGNALED(*status) ? fmt::format("was killed by signal {}", WTERMSIG(*status))
                                              : fmt::format("ended with exit code {}", WEXITSTATUS(*status)));
    }
    return {};
  }

 private:
  struct Child {
    pid_t pid;
    std::optional<int> status;
  };

  pid_t start(int rank, int ranks, const Words& words) const {
    Words said = words;
    said.insert(said.begin(), "gipo");
    Words all;
    for (char** e = environ; *e; ++e) all.emplace_back(*e);
    for (const auto& [name, value] : {std::pair("RANK", std::to_string(rank)),
                                      {"LOCAL_RANK", std::to_string(rank)},
                                      {"WORLD_SIZE", std::to_string(ranks)},
                                      {"MASTER_ADDR", std::string("127.0.0.1")},
                                      {"MASTER_PORT", std::to_string(host_->port())},
                                      {"TORCHELASTIC_USE_AGENT_STORE", std::string("True")}}) {
      const std::string begin = std::string(name) + "=";
      std::erase_if(all, [&](const std::string& e) { return e.starts_with(begin); });
      all.push_back(begin + value);
    }
    const auto pointers = [](Words& texts) {
      std::vector<char*> p;
      for (std::string& t : texts) p.push_back(t.data());
      p.push_back(nullptr);
      return p;
    };
    const std::vector<char*> argv = pointers(said), environment = pointers(all);
    const std::string program = own_path();
    const pid_t parent = ::getpid(), child = ::fork();
    if (child < 0) throw RunError(fmt::format("cannot start a process: {}", std::strerror(errno)));
    if (child > 0) return child;
    // Only calls that are safe in the child of a program with threads.
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
    ::setpgid(0, 0);  // Ctrl-C reaches the launcher alone, which then asks rank 0
    ::execve(program.c_str(), argv.data(), environment.data());
    ::_exit(127);
  }

  std::unique_ptr<RankHost> host_;
  std::vector<Child> children_;
};

// The words this program was started with.
Words own_words() {
  const std::string all = read_file("/proc/self/cmdline");
  Words words;
  for (std::size_t at = 0; at < all.size();) {
    words.emplace_back(all.c_str() + at);
    at += words.back().size() + 1;
  }
  words.erase(words.begin());
  return words;
}

std::int64_t newest_checkpoint(const std::string& run_dir) {
  const std::vector<std::int64_t> all = list_checkpoints(run_dir + "/" + kCheckpointFolder);
  return all.empty() ? -1 : all.back();
}

}  // namespace

std::optional<RankPlace> rank_place() {
  if (variable("RANK").empty() && variable("WORLD_SIZE").empty()) return std::nullopt;
  RankPlace place;
  place.ranks = number("WORLD_SIZE", 1, 1024);
  place.rank = number("RANK", 0, place.ranks - 1);
  if (place.ranks == 1) return std::nullopt;
  place.local_rank = variable("LOCAL_RANK").empty() ? 0 : number("LOCAL_RANK", 0, place.rank);
  place.host = variable("MASTER_ADDR");
  if (place.host.empty()) throw Error("MASTER_ADDR is not set in the environment: wanted the host of rank 0");
  place.port = number("MASTER_PORT", 1, 65535);
  place.hosted = variable("TORCHELASTIC_USE_AGENT_STORE") == "True";
  place.attempt = variable("TORCHELASTIC_RESTART_COUNT");
  place.interface = variable("GLOO_SOCKET_IFNAME");
  if (!variable("GIPO_RANK_WAIT").empty()) place.wait_seconds = number("GIPO_RANK_WAIT", 1, 86400);
  return place;
}

void refuse_other_ranks(const RankPlace& place, std::int64_t ranks, const std::string& where) {
  if (ranks == place.ranks) return;
  throw Error(fmt::format("{}: learner.ranks = {} is not accepted: WORLD_SIZE = {} ranks were started", where, ranks,
                          place.ranks));
}

int serve(const RankPlace& place) {
  // Rank 0 is asked to stop, and tells the others.
  std::signal(SIGINT, SIG_IGN);
  std::signal(SIGTERM, SIG_IGN);
  serve_rank(*join_ranks(place));
  return kDone;
}

int launch_ranks(const LearnerOptions& options, const std::string& run_dir, const std::function<Words(Words)>& again) {
  const auto ranks = static_cast<int>(options.ranks);
  if (options.device != "cpu") refuse_missing_devices(ranks, torch_cuda_devices().size());
  std::signal(SIGINT, count_signal);
  std::signal(SIGTERM, count_signal);
  Words words = own_words();
  std::int64_t newest = newest_checkpoint(run_dir);
  for (int losses = 0;;) {
    RankProcesses processes(ranks, words);
    int passed_on = 0;
    while (!processes.first_ended() && processes.lost().empty()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      for (; passed_on < signals_heard; ++passed_on) processes.signal_first(SIGINT);
      processes.look();
    }
    const std::optional<int> code = processes.code_of_first();
    if (code && *code != kFailed) return *code;
    if (signals_heard > 0) return kInterrupted;
    // Where rank 0 has failed by itself it tells the others, which then end as they should.
    const auto deadline = std::chrono::steady_clock::now() + kLeave;
    while (code && !processes.all_ended() && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      processes.look();
    }
    const std::string lost = processes.lost();
    if (code && lost.empty()) return *code;
    const std::int64_t now = newest_checkpoint(run_dir);
    losses = now > newest ? 1 : losses + 1;
    newest = now;
    if (losses == kMostLosses) {
      fmt::print(stderr, "gipo: {}; this was the {}rd time without a new checkpoint\n", lost, losses);
      return kFailed;
    }
    fmt::print(stderr, "gipo: {}; all ranks start again from {}\n", lost,
               now < 0 ? "the beginning" : fmt::format("checkpoint {}", now));
    words = again(own_words());
  }
}

}  // namespace gipo::cli
