#pragma once

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/support/slice.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace gipo {

struct HostPort;

// Rises with any change of learner.proto or of the messages inside it that an older program would misread.
inline constexpr std::uint32_t kProtocol = 2;
inline constexpr char kKeyMetadata[] = "gipo-key";
// A peer that is gone without a word is noticed after the sum of both.
inline constexpr int kKeepaliveMs = 4000, kKeepaliveTimeoutMs = 4000;
inline constexpr int kFrameBytes = 1 << 18;  // of HTTP/2, at most
// Reports that are ready together are one message, up to so many bytes; a larger one is a message alone.
inline constexpr std::size_t kPushBytes = 1 << 18, kPushReports = 256;
// With so many reports unanswered, more than slow actors ever have, fewer bytes than these wait for others or an answer.
inline constexpr std::size_t kUnanswered = 4, kWorthSending = 1 << 17;
inline constexpr std::size_t kWeightsPart = 1 << 20;
inline constexpr int kLongestConfig = 4 << 20;  // bytes of the largest message beside reports

// Throws Error where the certificate in that file is not valid now, by this host's clock.
void refuse_outside_its_time(const std::string& certificate_file);

// The beginning of a message of protobuf's whose last field is so many bytes, which follow in a slice of their own.
grpc::Slice bytes_field(std::string fields_before, int number, std::size_t bytes);
// Bytes of something that lives as long as the slice does: not copied.
template <class T>
grpc::Slice shared_slice(const std::shared_ptr<T>& owner, std::string_view bytes) {
  return grpc::Slice(
      const_cast<char*>(bytes.data()), bytes.size(), [](void* held) { delete static_cast<std::shared_ptr<T>*>(held); },
      new std::shared_ptr<T>(owner));
}

// folder: of certificates; empty: none, which is for loopback alone. They throw Error.
std::shared_ptr<grpc::ServerCredentials> server_credentials(const std::string& folder, const HostPort& address);
std::shared_ptr<grpc::ChannelCredentials> channel_credentials(const std::string& folder, const HostPort& address);

}  // namespace gipo
