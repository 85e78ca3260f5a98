#pragma once

#include <grpcpp/alarm.h>

#include <memory>

#include "gipo/remote/grpc/server.h"

namespace gipo {

// One call of Push. gRPC owns it from the moment it is returned; it ends itself.
class PushStream final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  PushStream(RemoteServer& server, std::shared_ptr<RemoteSession> session);
  explicit PushStream(const grpc::Status& refusal) : server_(nullptr) { Finish(refusal); }

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  // With the server's lock held.
  bool free() const { return !writing_ && !ending_ && !over_; }
  void write(const wire::PushReply& reply);
  void end(const grpc::Status& status);  // once what is being written is
  void discard();                        // reads on, where a message was the last to be taken

 private:
  void read_on();

  RemoteServer* server_;
  std::shared_ptr<RemoteSession> session_;
  grpc::ByteBuffer request_, reply_;
  grpc::Alarm alarm_;
  grpc::Status status_;
  bool writing_ = false, paused_ = false, held_ = false, lost_ = false, ending_ = false, over_ = false;
};

// One call of Weights.
class WeightStream final : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  WeightStream(RemoteServer& server, std::shared_ptr<RemoteSession> session);
  explicit WeightStream(const grpc::Status& refusal) : server_(nullptr) { Finish(refusal); }

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  // With the server's lock held. Sends these if they are newer, and if the last took little of the time since.
  void offer(const std::shared_ptr<const EncodedWeights>& weights);
  void end(const grpc::Status& status);

 private:
  void write_part();

  RemoteServer* server_;
  std::shared_ptr<RemoteSession> session_;
  std::shared_ptr<const EncodedWeights> sending_;
  std::size_t offset_ = 0;
  std::int64_t version_ = -1;  // of those sent last
  double begun_ = 0, not_before_ = 0;
  grpc::ByteBuffer message_;
  grpc::Status status_;
  bool writing_ = false, ending_ = false, over_ = false;
};

}  // namespace gipo
