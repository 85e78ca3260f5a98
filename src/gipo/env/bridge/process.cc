#include "gipo/env/bridge/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "gipo/core/error.h"
#include "gipo/core/stop.h"
#include "gipo/env/bridge/source.h"

extern char** environ;

namespace gipo {
namespace {

constexpr int kChannel = 3, kMemory = 4;  // of the worker
constexpr int kNoPython = 127;
using namespace std::chrono_literals;
constexpr auto kLook = 50ms;  // between looks at whether the process lives and is still wanted
constexpr int kEndMs = 2;
constexpr std::chrono::milliseconds kMostEnd = 2s,
                                    kMostEndStopping = 500ms;  // environments may have something to close
constexpr off_t kMostErrors = 1 << 20, kShownErrors = 4096;    // bytes
constexpr std::uint32_t kMostAnswer = 64 << 20;

[[noreturn]] void cannot(const char* what) {
  throw RunError(fmt::format("cannot start a worker: {}: {}", what, std::strerror(errno)));
}

struct Descriptors {
  int channel, memory, errors;
};

// The child's side of fork: only calls that are safe there.
[[noreturn]] void become(const char* python, char* const* argv, char* const* environment, const Descriptors& given,
                         pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);  // the parent died before the line above
  ::setpgid(0, 0);                        // Ctrl-C reaches the program alone, which then ends its workers
  // Out of the way of the numbers they are to get.
  std::array<int, 3> moved = {given.channel, given.memory, given.errors};
  for (int& d : moved) d = ::fcntl(d, F_DUPFD, 16);
  ::dup2(::open("/dev/null", O_RDONLY), STDIN_FILENO);
  ::dup2(STDERR_FILENO, STDOUT_FILENO);  // what an environment prints is seen, and our standard output stays ours
  ::dup2(moved[0], kChannel);
  ::dup2(moved[1], kMemory);
  ::dup2(moved[2], STDERR_FILENO);
  for (const int d : moved) ::close(d);
  environ = const_cast<char**>(environment);
  ::execvp(python, argv);
  ::_exit(kNoPython);
}

// Ours, and one thread for each library that would take all cores for itself.
std::vector<std::string> worker_environment() {
  std::vector<std::string> all;
  for (char** e = environ; *e; ++e) all.emplace_back(*e);
  for (const char* name : {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"}) {
    if (!std::getenv(name)) all.push_back(std::string(name) + "=1");
  }
  return all;
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> all;
  all.reserve(words.size() + 1);
  for (std::string& w : words) all.push_back(w.data());
  all.push_back(nullptr);
  return all;
}

}  // namespace

// Once the other constructor has ended, the destructor tidies up after a failure here, too.
WorkerProcess::WorkerProcess(const std::string& python, const nlohmann::json& setup, const Patience& patience)
    : WorkerProcess(patience) {
  start(python);
  tell(setup);
}

void WorkerProcess::start(const std::string& python) {
  int ends[2] = {-1, -1};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) cannot("socketpair");
  channel_ = ends[0];
  const timeval look{0, std::chrono::microseconds(kLook).count()};
  ::setsockopt(channel_, SOL_SOCKET, SO_RCVTIMEO, &look, sizeof look);
  memory_ = ::memfd_create("gipo-worker", MFD_CLOEXEC);
  errors_ = ::memfd_create("gipo-worker-errors", MFD_CLOEXEC);
  if (errors_ >= 0) ::fcntl(errors_, F_SETFL, O_APPEND);

  std::vector<std::string> words = {python, "-c", worker_source()}, variables = worker_environment();
  const std::vector<char*> argv = pointers(words), environment = pointers(variables);
  const pid_t parent = ::getpid(), child = memory_ < 0 || errors_ < 0 ? -1 : ::fork();
  if (child == 0) {
    become(python.c_str(), argv.data(), environment.data(), {ends[1], memory_, errors_}, parent);
  }
  const int error = errno;
  ::close(ends[1]);
  errno = error;
  if (child < 0) cannot("fork");
  pid_ = child;
}

void WorkerProcess::end() {
  if (pid_ < 0 || reaped_) return;
  ::kill(pid_, SIGKILL);
  while (::waitpid(pid_, &status_, 0) < 0 && errno == EINTR) {
  }
  reaped_ = true;
}

void WorkerProcess::dismiss() {
  if (dismissed_ != Clock::time_point()) return;
  dismissed_ = Clock::now();
  if (channel_ >= 0) ::shutdown(channel_, SHUT_RDWR);
}

WorkerProcess::~WorkerProcess() {
  dismiss();
  const bool stopping = patience_.stop && patience_.stop->requested();
  if (pid_ > 0) await_end((stopping ? kMostEndStopping : kMostEnd) - (Clock::now() - dismissed_));
  if (mapped_) ::munmap(mapped_, mapped_bytes_);
  for (const int d : {channel_, memory_, errors_}) {
    if (d >= 0) ::close(d);
  }
}

bool WorkerProcess::ended() {
  if (reaped_) return true;
  const pid_t found = ::waitpid(pid_, &status_, WNOHANG);
  return reaped_ = found == pid_ || (found < 0 && errno == ECHILD);
}

bool WorkerProcess::gave_up() {
  if (patience_.seconds <= 0 || std::chrono::duration<double>(Clock::now() - asked_).count() < patience_.seconds) {
    return false;
  }
  overdue_ = true;
  end();
  return true;
}

// The other end of the channel may be held open by a process that the worker has started: what counts is whether it
// lives, which is looked at whenever nothing has come for a while.
bool WorkerProcess::read_exactly(void* out, std::size_t bytes) {
  auto* to = static_cast<char*>(out);
  bool gone = false;
  while (bytes > 0) {
    const ssize_t got = ::recv(channel_, to, bytes, gone ? MSG_DONTWAIT : 0);
    if (got > 0) {
      to += got;
      bytes -= static_cast<std::size_t>(got);
    } else if (got < 0 && errno == EINTR) {
      continue;
    } else if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) && !gone) {
      throw_if_requested(patience_.stop);
      gone = ended() || gave_up();
    } else {
      return false;
    }
  }
  return true;
}

std::optional<WorkerProcess::Answer> WorkerProcess::wait() {
  Answer answer;
  asked_ = Clock::now();
  if (!read_exactly(&answer.kind, 1)) return std::nullopt;
  if (answer.kind == '.') return answer;
  std::uint32_t size = 0;
  if (!read_exactly(&size, sizeof size)) return std::nullopt;
  if (size > kMostAnswer) throw RunError("a worker's answer is damaged");
  std::string text(size, '\0');
  if (!read_exactly(text.data(), size)) return std::nullopt;
  answer.value = nlohmann::json::parse(text, nullptr, false);
  if (!answer.value.is_object()) throw RunError("a worker's answer is damaged");
  return answer;
}

// That a worker is gone shows when its answer is waited for.
void WorkerProcess::write_all(const void* data, std::size_t bytes) {
  const auto* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t put = ::send(channel_, from, bytes, MSG_NOSIGNAL);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return;
    from += put;
    bytes -= static_cast<std::size_t>(put);
  }
}

void WorkerProcess::tell(const nlohmann::json& value) {
  const std::string text = value.dump();
  const auto size = static_cast<std::uint32_t>(text.size());
  write_all(&size, sizeof size);
  write_all(text.data(), text.size());
}

void WorkerProcess::go() {
  if (++rounds_ % 4096 == 0) keep_short();
  write_all("g", 1);
}

// An environment that complains at every step must not fill the memory.
void WorkerProcess::keep_short() {
  struct stat file {};
  if (::fstat(errors_, &file) == 0 && file.st_size > kMostErrors && ::ftruncate(errors_, 0) != 0) errno = 0;
}

std::byte* WorkerProcess::share(std::size_t bytes) {
  GIPO_CHECK(!mapped_);
  if (::ftruncate(memory_, static_cast<off_t>(bytes)) != 0) cannot("ftruncate");
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory_, 0);
  if (memory == MAP_FAILED) cannot("mmap");
  mapped_ = static_cast<std::byte*>(memory);
  mapped_bytes_ = bytes;
  return mapped_;
}

// The channel is closed, so it is ending: how, is known a little later.
void WorkerProcess::await_end(Clock::duration most) {
  const Clock::time_point until = Clock::now() + most;
  while (!ended() && Clock::now() < until) ::poll(nullptr, 0, kEndMs);
  end();
}

bool WorkerProcess::never_started() {
  await_end(kMostEnd);
  return WIFEXITED(status_) && WEXITSTATUS(status_) == kNoPython;
}

std::string WorkerProcess::last_words() {
  await_end(kMostEnd);
  std::string text =
      overdue_ ? fmt::format("it did not answer within {:g} s (env.step_timeout) and was ended", patience_.seconds)
      : WIFSIGNALED(status_)
          ? fmt::format("it was ended by signal {} ({})", WTERMSIG(status_), ::strsignal(WTERMSIG(status_)))
          : fmt::format("it ended with exit code {}", WEXITSTATUS(status_));
  struct stat file {};
  if (::fstat(errors_, &file) != 0 || file.st_size == 0) return text + ", without a word";
  const off_t size = std::min(file.st_size, kShownErrors);
  std::string said(static_cast<std::size_t>(size), '\0');
  const ssize_t got = ::pread(errors_, said.data(), said.size(), file.st_size - size);
  said.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  // After a crash faulthandler writes the stack; the frames of the worker's own source say nothing to a user.
  for (std::size_t at; (at = said.find("  File \"<string>\", line")) != std::string::npos;) {
    said.erase(at, std::min(said.find('\n', at), said.size() - 1) + 1 - at);
  }
  while (!said.empty() && said.back() == '\n') said.pop_back();
  return text + "; it had written:\n" + said;
}

}  // namespace gipo
