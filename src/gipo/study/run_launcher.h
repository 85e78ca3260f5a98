#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace gipo {

// Where the processes of a suite's runs are. Used by one thread.
class RunLauncher {
 public:
  struct End {
    std::optional<int> code;  // none: it was killed, or its machine was lost
    std::string why;          // where it could not be started there
  };

  virtual ~RunLauncher() = default;
  virtual int room() = 0;  // runs at a time, where the user does not say
  // Starts `gipo ARGUMENTS`, which appends what it prints to that file. A number for it. Throws RunError.
  virtual pid_t start(const std::vector<std::string>& arguments, const std::string& output_path) = 0;
  virtual std::optional<End> ended(pid_t run) = 0;  // none while it goes on; after that it is forgotten
  virtual void interrupt(pid_t run) = 0;            // asks it to save and end
  virtual void kill(pid_t run) = 0;
};

// Children of this process. They die with it, however that ends (PR_SET_PDEATHSIG).
class LocalLauncher final : public RunLauncher {
 public:
  explicit LocalLauncher(std::string binary) : binary_(std::move(binary)) {}

  int room() override;
  pid_t start(const std::vector<std::string>& arguments, const std::string& output_path) override;
  std::optional<End> ended(pid_t run) override;
  void interrupt(pid_t run) override;
  void kill(pid_t run) override;

 private:
  const std::string binary_;
};

}  // namespace gipo
