#include "gipo/core/signals.h"

#include <time.h>
#include <unistd.h>

namespace gipo {
namespace {

constexpr std::int64_t kOneRequestMs = 1000;

std::int64_t now_ms() {
  timespec t{};
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000 + t.tv_nsec / 1'000'000;
}

}  // namespace

SignalRequest::Heard SignalRequest::hear() {
  std::int64_t none = 0;
  const std::int64_t now = now_ms();
  if (first_ms_.compare_exchange_strong(none, now)) {
    stop_ = true;
    return Heard::kFirst;
  }
  return now - none < kOneRequestMs ? Heard::kSame : Heard::kAgain;
}

void SignalRequest::say_stopping() {
  constexpr char kText[] = "\ngipo: stopping; again to quit\n";
  if (::write(STDERR_FILENO, kText, sizeof kText - 1) < 0) return;  // nobody listens
}

}  // namespace gipo
