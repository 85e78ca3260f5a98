#pragma once

#include <optional>
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

  // The line without its place on the screen.
  std::string text(const Progress& progress);

 private:
  std::string name_;
  bool quiet_, terminal_;
  double shown_at_ = -1e9;
  bool open_ = false;
  // Where updates began, as far as it was seen: the warm-up before, and what a run had made before it was resumed, say
  // nothing of the time that an update takes.
  std::optional<Progress> first_;
};

// Three significant digits, all of a larger whole number: "-0.0123", "12.3", "1235".
std::string in_digits(double value);

// "2m03s"
std::string in_time(double seconds);

}  // namespace gipo::cli
