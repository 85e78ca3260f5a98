#include "gipo/remote/grpc/streams.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "gipo/remote/grpc/clock.h"

namespace gipo {
namespace {

// A transfer of weights is followed by a pause as many times as long, so that it leaves the wire to reports.
constexpr double kPauseAfterWeights = 3;

}  // namespace

PushStream::PushStream(RemoteServer& server, std::shared_ptr<RemoteSession> session)
    : server_(&server), session_(std::move(session)) {
  StartRead(&request_);
}

void PushStream::OnReadDone(bool ok) {
  if (!server_) return;
  if (!ok) {
    const RemoteServer::Lock lock(server_->mutex_);
    return end(grpc::Status::OK);  // the actor has ended its half, or is gone
  }
  double pause = 0;
  const grpc::Status status = server_->take(session_, request_, pause);
  request_.Clear();  // its memory is gRPC's again
  if (!status.ok()) {
    const RemoteServer::Lock lock(server_->mutex_);
    return end(status);
  }
  const RemoteServer::Lock lock(server_->mutex_);
  if (ending_) return end(status_);
  if (pause == RemoteServer::kNever && !server_->finished_) {  // until the server knows how the run has ended
    held_ = true;
    return;
  }
  if (pause <= 0) return StartRead(&request_);
  paused_ = true;
  alarm_.Set(std::chrono::system_clock::now() + std::chrono::microseconds(static_cast<std::int64_t>(1e6 * pause)),
             [this](bool) { read_on(); });
}

void PushStream::read_on() {
  const RemoteServer::Lock lock(server_->mutex_);
  paused_ = false;
  if (ending_) return end(status_);
  StartRead(&request_);
}

void PushStream::discard() {
  if (std::exchange(held_, false) && !ending_) StartRead(&request_);
}

void PushStream::write(const wire::PushReply& reply) {
  const grpc::Slice slice(reply.SerializeAsString());
  reply_ = grpc::ByteBuffer(&slice, 1);
  writing_ = true;
  StartWrite(&reply_);
}

void PushStream::OnWriteDone(bool ok) {
  if (!server_) return;
  const RemoteServer::Lock lock(server_->mutex_);
  writing_ = false;
  if (!ok) ending_ = true;
  if (ending_) return end(status_);
  server_->send(*session_);
}

void PushStream::end(const grpc::Status& status) {
  if (over_) return;
  if (!ending_) status_ = status;
  ending_ = true;
  if (paused_) alarm_.Cancel();
  if (writing_ || paused_) return;
  over_ = true;
  Finish(status_);
}

void PushStream::OnCancel() {
  if (!server_) return;
  const RemoteServer::Lock lock(server_->mutex_);
  lost_ = true;
  end(grpc::Status::CANCELLED);
}

void PushStream::OnDone() {
  if (server_) server_->detach(session_, this, lost_);
  delete this;
}

WeightStream::WeightStream(RemoteServer& server, std::shared_ptr<RemoteSession> session)
    : server_(&server), session_(std::move(session)) {}

void WeightStream::offer(const std::shared_ptr<const EncodedWeights>& weights) {
  if (writing_ || ending_ || sending_ || weights->version <= version_) return;
  const double now = seconds_now();
  if (now < not_before_) return;
  sending_ = weights;
  offset_ = 0;
  begun_ = now;
  write_part();
}

// A WeightsReply whose bytes are those of the weights themselves.
void WeightStream::write_part() {
  const std::size_t size = sending_->bytes.size(), part = std::min(kWeightsPart, size - offset_);
  wire::WeightsReply head;
  head.set_version(sending_->version);
  head.set_size(size);
  head.set_offset(offset_);
  if (offset_ + part == size) head.set_crc(sending_->crc);
  const grpc::Slice slices[] = {bytes_field(head.SerializeAsString(), wire::WeightsReply::kPartFieldNumber, part),
                                shared_slice(sending_, {sending_->bytes.data() + offset_, part})};
  message_ = grpc::ByteBuffer(slices, 2);
  offset_ += part;
  writing_ = true;
  StartWrite(&message_);
}

void WeightStream::OnWriteDone(bool ok) {
  if (!server_) return;
  const RemoteServer::Lock lock(server_->mutex_);
  writing_ = false;
  if (!ok) ending_ = true;
  if (ending_) return end(status_);
  if (offset_ < sending_->bytes.size()) return write_part();
  version_ = sending_->version;
  sending_.reset();
  const double now = seconds_now();
  not_before_ = now + kPauseAfterWeights * (now - begun_);
}

void WeightStream::end(const grpc::Status& status) {
  if (over_) return;
  if (!ending_) status_ = status;
  ending_ = true;
  if (writing_) return;
  over_ = true;
  Finish(status_);
}

void WeightStream::OnCancel() {
  if (!server_) return;
  const RemoteServer::Lock lock(server_->mutex_);
  end(grpc::Status::CANCELLED);
}

void WeightStream::OnDone() {
  if (server_) {
    const RemoteServer::Lock lock(server_->mutex_);
    if (session_->weights == this) session_->weights = nullptr;
  }
  delete this;
}

}  // namespace gipo
