#include "gipo/cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace gipo::cli {
namespace {

constexpr double kTerminalInterval = 0.1, kPlainInterval = 5.0;  // seconds

// What a run that clones shows in place of returns.
std::string likelihood(const Progress& p) {
  std::string text;
  if (!p.figures) return text;
  for (const auto& [name, value] : *p.figures) {
    for (const auto& [figure, shown] : {std::pair{"learned_log_likelihood", "log-likelihood"},
                                        {"heldout_log_likelihood", "held-out"},
                                        {"heldout_accuracy", "accuracy"},
                                        {"heldout_action_error", "error"}}) {
      if (name == figure) text += fmt::format("{}{} {}", text.empty() ? "" : "  ", shown, in_digits(value));
    }
  }
  return text;
}

}  // namespace

std::string in_time(double seconds) {
  const auto s = static_cast<long long>(std::ceil(std::max(0.0, seconds)));
  if (s < 60) return fmt::format("{}s", s);
  if (s < 3600) return fmt::format("{}m{:02}s", s / 60, s % 60);
  return fmt::format("{}h{:02}m", s / 3600, s / 60 % 60);
}

std::string in_digits(double value) {
  const double size = std::abs(value);
  if (size == 0 || !std::isfinite(value)) return fmt::format("{}", value);
  if (size < 1e-4) return fmt::format("{:.2e}", value);
  return fmt::format("{:.{}f}", value, std::max(0, 2 - static_cast<int>(std::floor(std::log10(size)))));
}

ProgressLine::ProgressLine(std::string name, bool quiet)
    : name_(std::move(name)), quiet_(quiet), terminal_(isatty(STDERR_FILENO) != 0) {}

ProgressLine::~ProgressLine() { end(); }

std::string ProgressLine::text(const Progress& p) {
  if (!first_ || p.update <= first_->update) first_ = p;
  if (p.update == 0) {
    return fmt::format("{} warm-up: {} of {} env steps  {:.0f} env steps/s", name_, p.env_steps, p.warmup,
                       p.seconds > 0 ? static_cast<double>(p.env_steps) / p.seconds : 0.0);
  }
  const double updates = static_cast<double>(p.update - first_->update), seconds = p.seconds - first_->seconds;
  const bool known = updates > 0 && seconds > 0;
  const auto rate = [&](double count) { return known ? fmt::format("{:.0f}", count / seconds) : "-"; };
  const std::string left =
      known ? in_time(seconds / updates * static_cast<double>(p.updates - p.update)) : std::string("-");
  const std::string clock = p.update == p.updates ? in_time(p.seconds) : "ETA " + left;
  if (const std::string measured = likelihood(p); !measured.empty()) {
    return fmt::format("{} {:3.0f}%  {} updates/s  {}  {}", name_,
                       100 * static_cast<double>(p.update) / static_cast<double>(p.updates), rate(updates), measured,
                       clock);
  }
  return fmt::format("{} {:3.0f}%  {} env steps/s  {} updates/s  return {}  gap {:.0f}  {}", name_,
                     100 * static_cast<double>(p.update) / static_cast<double>(p.updates),
                     rate(static_cast<double>(p.env_steps - first_->env_steps)), rate(updates),
                     std::isnan(p.recent_return) ? "-" : in_digits(p.recent_return), p.gap_mean, clock);
}

void ProgressLine::show(const Progress& p) {
  const bool last = p.update == p.updates;
  const std::string line = text(p);  // always: it takes note of where updates began
  const double interval = terminal_ ? kTerminalInterval : kPlainInterval;
  if (quiet_ || (!last && p.seconds - shown_at_ < interval)) return;
  shown_at_ = p.seconds;
  std::fprintf(stderr, terminal_ ? "\r%s\x1b[K" : "%s\n", line.c_str());
  std::fflush(stderr);
  open_ = terminal_;
}

void ProgressLine::end() {
  if (open_) std::fputc('\n', stderr);
  open_ = false;
}

}  // namespace gipo::cli
