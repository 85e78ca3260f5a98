#pragma once

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>

#include <cstdint>
#include <memory>
#include <string>

namespace gipo {

struct HostPort;

// Rises with any change of learner.proto or of the messages inside it that an older program would misread.
inline constexpr std::uint32_t kProtocol = 1;
inline constexpr char kKeyMetadata[] = "gipo-key";
// A peer that is gone without a word is noticed after the sum of both.
inline constexpr int kKeepaliveMs = 4000, kKeepaliveTimeoutMs = 4000;
inline constexpr std::size_t kWeightsPart = 1 << 20;
inline constexpr int kLongestConfig = 4 << 20;  // bytes of the largest message beside reports

// Throws Error where the certificate in that file is not valid now, by this host's clock.
void refuse_outside_its_time(const std::string& certificate_file);

// folder: of certificates; empty: none, which is for loopback alone. They throw Error.
std::shared_ptr<grpc::ServerCredentials> server_credentials(const std::string& folder, const HostPort& address);
std::shared_ptr<grpc::ChannelCredentials> channel_credentials(const std::string& folder, const HostPort& address);

}  // namespace gipo
