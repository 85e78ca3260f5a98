// Ranks over libtorch's process groups: gloo, over TCP.
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <iostream>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <vector>

#include "gipo/learner/ranks.h"

namespace gipo {
namespace {

using std::chrono::milliseconds;
using torch::Tensor;

// A rank that is dead closes its connections, which is noticed at once. This is for machines that are cut off: longer
// than any rank computes without a word.
constexpr milliseconds kSilence = std::chrono::minutes(10);
constexpr std::size_t kBlock = std::size_t{1} << 20;  // floats of each rank that are exchanged at a time
constexpr std::uint64_t kLongest = std::uint64_t{1} << 40;
constexpr std::size_t kFirst = 2048;  // bytes that a message begins with: its length, and all of it where it is short

// gloo tells standard output how many ranks have connected, and libtorch standard error what it then throws.
class Silence {
 public:
  Silence() : before_(std::cout.rdbuf(nullptr)) { FLAGS_caffe2_log_level = c10::GLOG_FATAL; }
  ~Silence() { std::cout.rdbuf(before_); }
  Silence(const Silence&) = delete;
  Silence& operator=(const Silence&) = delete;

 private:
  std::streambuf* before_;
};

// The first line: what follows are frames of libtorch's.
std::string first_line(const std::exception& e) {
  const std::string text = e.what();
  return text.substr(0, text.find('\n'));
}

template <class T>
Tensor tensor_over(const T* values, std::size_t count, torch::ScalarType type) {
  return torch::from_blob(const_cast<T*>(values), {static_cast<std::int64_t>(count)}, type);
}

class GlooGroup final : public RankGroup {
 public:
  GlooGroup(const RankPlace& place, const c10::intrusive_ptr<c10d::Store>& store)
      : rank_(place.rank), size_(place.ranks) {
    const auto options = c10d::ProcessGroupGloo::Options::create(kSilence);
    using Gloo = c10d::ProcessGroupGloo;
    const bool local = place.host == "localhost" || place.host == "::1" || place.host.starts_with("127.");
    options->devices.push_back(!place.interface.empty() ? Gloo::createDeviceForInterface(place.interface)
                               : local                  ? Gloo::createDeviceForHostname("127.0.0.1")
                                                        : Gloo::createDefaultDevice());
    group_ = c10::make_intrusive<Gloo>(store, rank_, size_, options);
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  void send(int to, std::string_view message) override {
    attempt(to, [&] {
      const std::uint64_t length = message.size();
      char first[kFirst] = {};
      const std::string_view begin = message.substr(0, kFirst - sizeof length);
      std::memcpy(first, &length, sizeof length);
      std::ranges::copy(begin, first + sizeof length);
      send_bytes(to, first, kFirst);
      if (length > begin.size()) send_bytes(to, message.data() + begin.size(), length - begin.size());
    });
  }

  std::string receive(int from) override {
    std::string message;
    attempt(from, [&] {
      std::uint64_t length = 0;
      char first[kFirst];
      receive_bytes(from, first, kFirst);
      std::memcpy(&length, first, sizeof length);
      if (length > kLongest) throw RunError(fmt::format("a message of {} bytes", length));
      const std::size_t begin = std::min<std::size_t>(length, kFirst - sizeof length);
      message.assign(first + sizeof length, begin);
      message.resize(length);
      if (length > begin) receive_bytes(from, message.data() + begin, length - begin);
    });
    return message;
  }

  // Everyone gives each rank what is in that one's share, a block at a time, so that little is held beside the array.
  void sum_shares(std::span<const float> all, std::span<float> own) override {
    const auto ranks = static_cast<std::size_t>(size_);
    const std::size_t longest = (all.size() + ranks - 1) / ranks, block = std::min(longest, kBlock);
    given_.resize(ranks * block);
    taken_.resize(ranks * block);
    for (std::size_t done = 0; done < longest; done += block) {
      std::size_t mine = 0;
      for (int r = 0; r < size_; ++r) {
        const auto [begin, end] = share_of(all.size(), r, size_);
        const std::size_t first = std::min(begin + done, end), count = std::min(block, end - first);
        std::copy_n(all.data() + first, count, given_.data() + static_cast<std::size_t>(r) * block);
        if (r == rank_) mine = count;
      }
      attempt(-1, [&] {
        Tensor out = tensor_over(taken_.data(), taken_.size(), torch::kFloat32);
        Tensor in = tensor_over(given_.data(), given_.size(), torch::kFloat32);
        std::vector<std::int64_t> evenly;
        group_->alltoall_base(out, in, evenly, evenly)->wait();
      });
      for (std::size_t i = 0; i < mine; ++i) {
        float sum = taken_[i];
        for (std::size_t r = 1; r < ranks; ++r) sum += taken_[r * block + i];
        own[done + i] = sum;
      }
    }
  }

  void spread_shares(std::span<float> all) override {
    attempt(-1, [&] {
      std::vector<c10::intrusive_ptr<c10d::Work>> work;
      for (int r = 0; r < size_; ++r) {
        const auto [begin, end] = share_of(all.size(), r, size_);
        if (begin == end) continue;
        std::vector<Tensor> share = {tensor_over(all.data() + begin, end - begin, torch::kFloat32)};
        c10d::BroadcastOptions options;
        options.rootRank = r;
        work.push_back(group_->broadcast(share, options));
      }
      for (const auto& w : work) w->wait();
    });
  }

 private:
  void send_bytes(int to, const void* data, std::size_t size) {
    std::vector<Tensor> tensors = {tensor_over(static_cast<const char*>(data), size, torch::kUInt8)};
    group_->send(tensors, to, 0)->wait();
  }
  void receive_bytes(int from, void* data, std::size_t size) {
    std::vector<Tensor> tensors = {tensor_over(static_cast<char*>(data), size, torch::kUInt8)};
    group_->recv(tensors, from, 0)->wait();
  }

  template <class F>
  void attempt(int with, F&& f) {
    if (!lost_.empty()) throw RanksLost(lost_);
    try {
      f();
    } catch (const std::exception& e) {
      const std::string whom = with < 0 ? "another rank" : fmt::format("rank {}", with);
      lost_ = fmt::format("rank {} of {} has lost {}: {}", rank_, size_, whom, first_line(e));
      throw RanksLost(lost_);
    }
  }

  int rank_, size_;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
  std::string lost_;  // why no more can be asked of the group
  std::vector<float> given_, taken_;
};

class StoreHost final : public RankHost {
 public:
  StoreHost() {
    c10d::TCPStoreOptions options;
    options.port = 0;
    options.isServer = true;
    options.waitWorkers = false;
    store_ = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  }
  int port() const override { return store_->getPort(); }

 private:
  c10::intrusive_ptr<c10d::TCPStore> store_;
};

}  // namespace

std::shared_ptr<RankGroup> join_ranks(const RankPlace& place) {
  const Silence silence;
  const milliseconds wait(static_cast<std::int64_t>(1000 * place.wait_seconds));
  const auto refuse = [&](const std::string& why) -> Error {
    return Error(fmt::format("MASTER_ADDR = \"{}\", MASTER_PORT = {}: {}", place.host, place.port, why));
  };
  c10::intrusive_ptr<c10d::Store> store;
  try {
    c10d::TCPStoreOptions options;
    options.port = static_cast<std::uint16_t>(place.port);
    options.isServer = place.rank == 0 && !place.hosted;
    options.waitWorkers = false;
    options.timeout = wait;
    store = c10::make_intrusive<c10d::PrefixStore>("gipo/" + place.attempt,
                                                   c10::make_intrusive<c10d::TCPStore>(place.host, options));
  } catch (const std::exception& e) {
    throw refuse(fmt::format(
        "rank {} of {} {} ({})", place.rank, place.ranks,
        place.rank == 0 && !place.hosted ? "cannot listen there" : "found nobody who answers there", first_line(e)));
  }
  const auto key = [](int rank) { return "rank/" + std::to_string(rank); };
  int missing = 0;
  try {
    store->set(key(place.rank), std::string("here"));
    for (int r = 0; r < place.ranks; ++r) {
      missing = r;
      store->wait({key(r)}, wait);
    }
  } catch (const std::exception&) {
    throw refuse(fmt::format("rank {} of {} has not come within {:g} s", missing, place.ranks, place.wait_seconds));
  }
  try {
    return std::make_shared<GlooGroup>(place, store);
  } catch (const std::exception& e) {
    throw refuse(
        fmt::format("rank {} of {} cannot connect to the others ({})", place.rank, place.ranks, first_line(e)));
  }
}

std::unique_ptr<RankHost> host_ranks() { return std::make_unique<StoreHost>(); }

}  // namespace gipo
