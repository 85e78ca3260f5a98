#pragma once

#include <string>

#include "gipo/train/trainer.h"

namespace gipo::cli {

// Shows a run on stderr: one live line on a terminal, a plain line every few seconds elsewhere.
class ProgressLine {
 public:
  ProgressLine(std::string name, bool quiet);
  ~ProgressLine();

  void show(const Progress& progress);
  void end();  // leaves the last line standing

 private:
  std::string in_warmup(const Progress& p) const;
  void print(const std::string& line);

  std::string name_;
  bool quiet_, terminal_;
  double shown_at_ = -1e9;
  bool open_ = false;
};

// "2m03s"
std::string in_time(double seconds);

}  // namespace gipo::cli
