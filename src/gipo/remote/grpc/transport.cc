#include "gipo/remote/grpc/transport.h"

#include <fmt/format.h>

#include "gipo/core/error.h"
#include "gipo/io/files.h"
#include "gipo/remote/names.h"

namespace gipo {
namespace {

constexpr std::uint64_t kMostPem = 1 << 20;

void need_loopback(const HostPort& address, const char* what) {
  if (address.loopback()) return;
  throw Error(fmt::format(
      "{} {} is not accepted without --certs: only this machine (127.0.0.1, ::1, localhost) may be spoken to in the "
      "clear; `gipo certs DIR` makes certificates",
      what, address.text()));
}

grpc::SslCredentialsOptions client_files(const std::string& folder) {
  for (const char* file : {"/ca.crt", "/actor.crt"}) refuse_outside_its_time(folder + file);
  return {read_file(folder + "/ca.crt", kMostPem), read_file(folder + "/actor.key", kMostPem),
          read_file(folder + "/actor.crt", kMostPem)};
}

}  // namespace

grpc::Slice bytes_field(std::string text, int number, std::size_t bytes) {
  const auto varint = [&](std::uint64_t v) {
    for (; v >= 0x80; v >>= 7) text.push_back(static_cast<char>(v | 0x80));
    text.push_back(static_cast<char>(v));
  };
  constexpr int kLengthDelimited = 2;
  varint(static_cast<std::uint64_t>(number << 3 | kLengthDelimited));
  varint(bytes);
  return grpc::Slice(text);
}

std::shared_ptr<grpc::ServerCredentials> server_credentials(const std::string& folder, const HostPort& address) {
  if (folder.empty()) {
    need_loopback(address, "--listen");
    return grpc::InsecureServerCredentials();
  }
  for (const char* file : {"/ca.crt", "/learner.crt"}) refuse_outside_its_time(folder + file);
  grpc::SslServerCredentialsOptions options(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_root_certs = read_file(folder + "/ca.crt", kMostPem);
  options.pem_key_cert_pairs.push_back(
      {read_file(folder + "/learner.key", kMostPem), read_file(folder + "/learner.crt", kMostPem)});
  return grpc::SslServerCredentials(options);
}

std::shared_ptr<grpc::ChannelCredentials> channel_credentials(const std::string& folder, const HostPort& address) {
  if (folder.empty()) {
    need_loopback(address, "the address");
    return grpc::InsecureChannelCredentials();
  }
  return grpc::SslCredentials(client_files(folder));
}

}  // namespace gipo
