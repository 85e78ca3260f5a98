#include "gipo/cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace gipo::cli {
namespace {

constexpr double kTerminalInterval = 0.1, kPlainInterval = 5.0;  // seconds

}  // namespace

std::string in_time(double seconds) {
  const auto s = static_cast<long long>(std::ceil(std::max(0.0, seconds)));
  if (s < 60) return fmt::format("{}s", s);
  if (s < 3600) return fmt::format("{}m{:02}s", s / 60, s % 60);
  return fmt::format("{}h{:02}m", s / 3600, s / 60 % 60);
}

ProgressLine::ProgressLine(std::string name, bool quiet)
    : name_(std::move(name)), quiet_(quiet), terminal_(isatty(STDERR_FILENO) != 0) {}

ProgressLine::~ProgressLine() { end(); }

void ProgressLine::show(const Progress& p) {
  const bool last = p.update == p.updates;
  const double interval = terminal_ ? kTerminalInterval : kPlainInterval;
  if (quiet_ || (!last && p.seconds - shown_at_ < interval)) return;
  shown_at_ = p.seconds;
  if (!p.figures) return print(in_warmup(p));
  const double done = static_cast<double>(p.update) / static_cast<double>(p.updates);
  const double rate = p.seconds > 0 ? 1.0 / p.seconds : 0.0;
  const std::string line =
      fmt::format("{} {:3.0f}%  {:.0f} env steps/s  {:.0f} updates/s  return {}  gap {:.0f}  {}", name_, 100 * done,
                  static_cast<double>(p.env_steps) * rate, static_cast<double>(p.update) * rate,
                  std::isnan(p.recent_return) ? "-" : fmt::format("{:.1f}", p.recent_return), p.gap_mean,
                  last ? in_time(p.seconds) : "ETA " + in_time(p.seconds * (1 - done) / done));
  print(line);
}

std::string ProgressLine::in_warmup(const Progress& p) const {
  return fmt::format("{} warm-up: {} of {} env steps  {:.0f} env steps/s", name_, p.env_steps, p.warmup,
                     p.seconds > 0 ? static_cast<double>(p.env_steps) / p.seconds : 0.0);
}

void ProgressLine::print(const std::string& line) {
  std::fprintf(stderr, terminal_ ? "\r%s\x1b[K" : "%s\n", line.c_str());
  std::fflush(stderr);
  open_ = terminal_;
}

void ProgressLine::end() {
  if (open_) std::fputc('\n', stderr);
  open_ = false;
}

}  // namespace gipo::cli
