#include "gipo/remote/names.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <random>

#include "gipo/core/error.h"

namespace gipo {
namespace {

constexpr std::size_t kLongestName = 64;

}  // namespace

std::string HostPort::text() const {
  return host.find(':') == host.npos ? fmt::format("{}:{}", host, port) : fmt::format("[{}]:{}", host, port);
}

bool HostPort::loopback() const { return host == "localhost" || host == "::1" || host.starts_with("127."); }

HostPort parse_host_port(std::string_view text, std::string_view what) {
  const auto refuse = [&] {
    throw Error(
        fmt::format("{} {} is not accepted: wanted HOST:PORT, such as 127.0.0.1:7400 or [::1]:7400, with a port "
                    "from 0 to 65535",
                    what, text));
  };
  const std::size_t colon = text.rfind(':');
  if (colon == text.npos || colon == 0) refuse();
  std::string_view host = text.substr(0, colon);
  const std::string_view digits = text.substr(colon + 1);
  const bool brackets = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (brackets) host = host.substr(1, host.size() - 2);
  const bool letters = std::ranges::all_of(
      host, [&](unsigned char c) { return std::isalnum(c) || c == '.' || c == '-' || (brackets && c == ':'); });
  HostPort result{std::string(host), 0};
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), result.port);
  if (!letters || error != std::errc() || end != digits.data() + digits.size()) refuse();
  return result;
}

std::string actor_name_fault(std::string_view name) {
  const bool letters =
      std::ranges::all_of(name, [](unsigned char c) { return std::isalnum(c) || c == '.' || c == '-' || c == '_'; });
  if (!name.empty() && name.size() <= kLongestName && letters && name.front() != '.' && name.front() != '-') return {};
  return fmt::format("wanted 1 to {} letters, digits, dots, dashes and underscores, the first no dot or dash",
                     kLongestName);
}

std::string random_key() {
  std::random_device device;
  std::string key;
  for (int i = 0; i < 4; ++i) key += fmt::format("{:08x}", device());
  return key;
}

}  // namespace gipo
