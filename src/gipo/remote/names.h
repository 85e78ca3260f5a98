#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace gipo {

struct HostPort {
  std::string host;  // without the brackets of an IPv6 address
  std::uint16_t port = 0;

  std::string text() const;
  bool loopback() const;  // this machine alone: localhost, 127.*, ::1
};
// HOST:PORT. Throws Error, naming `what` ("--listen"), where it is none.
HostPort parse_host_port(std::string_view text, std::string_view what);

// Why no actor may have that name; empty: it may. Names stand in files, logs and certificates.
std::string actor_name_fault(std::string_view name);

// 32 hexadecimal digits that nobody can guess.
std::string random_key();

}  // namespace gipo
