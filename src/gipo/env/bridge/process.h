#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace gipo {

class Stop;

// A Python process that runs python/gipo/worker.py, with a socket and a piece of memory between us. It ends with this
// object, and with the thread that made it however that ends; the memory has no name, so nothing can be left behind.
// Owned and used by one thread.
class WorkerProcess {
 public:
  // How long it is waited for.
  struct Patience {
    double seconds = 0;          // for one answer, after which it is ended; 0: any time
    const Stop* stop = nullptr;  // where requested, waiting throws Interrupted
  };
  // Starts it and hands it its description; does not wait. Throws Error where there is no such Python.
  WorkerProcess(const std::string& python, const nlohmann::json& setup, const Patience& patience);
  ~WorkerProcess();
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  struct Answer {
    char kind = 0;  // '.' done, 'S' its spaces, 'T' tried out, 'E' an error
    nlohmann::json value;
  };
  // Waits for the next answer; nothing where the process has ended, or was ended because none came in time.
  std::optional<Answer> wait();
  void tell(const nlohmann::json& value);
  // One round of commands. A worker that has ended shows in wait().
  void go();
  // Lets it close its environments and end; the destructor waits for that, a little, counted from here.
  void dismiss();
  // Memory of this size, zeros at first, which the worker sees as well; until this object goes.
  std::byte* share(std::size_t bytes);

  bool never_started();  // there was no such Python; after wait() found it gone
  // How it ended and the last it wrote to its standard error, for messages. After wait() found it gone.
  std::string last_words();

 private:
  using Clock = std::chrono::steady_clock;
  explicit WorkerProcess(const Patience& patience) : patience_(patience) {}
  void start(const std::string& python);
  void end();
  void await_end(Clock::duration most);
  bool ended();  // and reaped, if it has
  bool read_exactly(void* out, std::size_t bytes);
  bool gave_up();  // and ended it, where its answer is overdue
  void write_all(const void* data, std::size_t bytes);
  void keep_short();

  const Patience patience_;
  Clock::time_point asked_, dismissed_;  // when the answer was first waited for; when it was told to end
  bool overdue_ = false;                 // it was ended because it did not answer
  pid_t pid_ = -1;
  bool reaped_ = false;
  int status_ = 0;
  int channel_ = -1, memory_ = -1, errors_ = -1;
  std::byte* mapped_ = nullptr;
  std::size_t mapped_bytes_ = 0;
  std::uint64_t rounds_ = 0;
};

}  // namespace gipo
