// Ranks over libtorch's process groups: gloo, over TCP; between CUDA devices NCCL.
#include <fmt/format.h>
#include <torch/torch.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <vector>

#include "gipo/learner/ranks.h"
#include "gipo/learner/torch/rank_devices.h"
#include "gipo/policy/torch_policy.h"

namespace gipo {
namespace {

using std::chrono::milliseconds;
using torch::Tensor;

// A rank that is dead closes its connections, which is noticed at once. This is for machines that are cut off: longer
// than any rank computes without a word.
constexpr milliseconds kSilence = std::chrono::minutes(10);
constexpr milliseconds kAttempt = std::chrono::seconds(1);  // to reach rank 0, before the next one,
constexpr milliseconds kPause{100};                         // after this, and the least that is waited
constexpr std::size_t kBlock = std::size_t{1} << 20;        // floats of each rank that are exchanged at a time
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

// As NCCL knows it.
std::string this_host() {
  if (const char* const said = std::getenv("NCCL_HOSTID")) return said;
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  return name;
}

template <class T>
Tensor tensor_over(const T* values, std::size_t count, torch::ScalarType type) {
  return torch::from_blob(const_cast<T*>(values), {static_cast<std::int64_t>(count)}, type);
}

class TorchGroup final : public RankGroup {
 public:
  TorchGroup(const RankPlace& place, const c10::intrusive_ptr<c10d::Store>& store)
      : rank_(place.rank), size_(place.ranks), local_rank_(place.local_rank), store_(store) {
    const auto options = c10d::ProcessGroupGloo::Options::create(kSilence);
    using Gloo = c10d::ProcessGroupGloo;
    const bool local = place.host == "localhost" || place.host == "::1" || place.host.starts_with("127.");
    options->devices.push_back(!place.interface.empty() ? Gloo::createDeviceForInterface(place.interface)
                               : local                  ? Gloo::createDeviceForHostname("127.0.0.1")
                                                        : Gloo::createDefaultDevice());
    gloo_ = c10::make_intrusive<Gloo>(store, rank_, size_, options);
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

  void use_devices() override {
    const std::vector<std::string> devices = torch_cuda_devices();
    std::string mine, complaint;
    try {
      refuse_missing_devices(local_rank_ + 1, devices.size());
      mine = fmt::format("cuda:{}", static_cast<std::size_t>(local_rank_) % devices.size());
    } catch (const Error& e) {
      complaint = fmt::format("rank {} of {}: {}", rank_, size_, e.what());
    }
    // What each has, or why it has none, to all.
    const std::vector<std::string> all = gather(complaint.empty() ? "+" + this_host() + "/" + mine : "-" + complaint);
    for (const std::string& one : all) {
      if (one[0] == '-') throw Error(one.substr(1));
    }
    bool apart = true;
    for (std::size_t i = 0; i < all.size(); ++i) apart = apart && std::ranges::count(all, all[i]) == 1;
    device_ = mine;
    stay_on_device(device_);
    if (apart) attempt(-1, [&] { nccl_ = make_nccl(store_, rank_, size_, device_, kSilence); });
  }
  const std::string& device() const override { return device_; }

  void sum(std::span<double> values) override {
    const std::vector<std::string> all = gather({reinterpret_cast<const char*>(values.data()), values.size_bytes()});
    std::ranges::fill(values, 0.0);
    for (const std::string& one : all) {
      for (std::size_t i = 0; i < values.size(); ++i) {
        double value = 0;
        std::memcpy(&value, one.data() + i * sizeof value, sizeof value);
        values[i] += value;
      }
    }
  }

  void sum_shares(const RankArray& all, void* own) override {
    if (all.size == 0) return;
    const torch::NoGradGuard none;
    const Tensor whole = over(all), sum = over({own, count_of(share(all.size, rank_)), all.bf16});
    if (!nccl_) return sum_blocks(whole, sum);
    attempt(-1, [&] {
      each_share(whole, [&](int r, Tensor part) {
        std::vector<Tensor> tensors = {part};
        c10d::ReduceOptions options;
        options.rootRank = r;
        return nccl_->reduce(tensors, options);
      });
      if (sum.const_data_ptr() != part_of(whole, rank_).const_data_ptr()) sum.copy_(part_of(whole, rank_));
    });
  }

  void spread_shares(const RankArray& all) override {
    if (all.size == 0) return;
    const torch::NoGradGuard none;
    attempt(-1, [&] { each_share(over(all), [&](int r, const Tensor& part) { return broadcast(r, part); }); });
  }

  void spread_first(const RankArray& all) override {
    if (all.size == 0) return;
    const torch::NoGradGuard none;
    attempt(-1, [&] { broadcast(0, over(all))->wait(); });
    settle();
  }

 private:
  using Work = c10::intrusive_ptr<c10d::Work>;

  Tensor over(const RankArray& a) const {
    return torch::from_blob(
        a.data, {static_cast<std::int64_t>(a.size)},
        torch::TensorOptions(torch::Device(device_)).dtype(a.bf16 ? torch::kBFloat16 : torch::kFloat32));
  }
  std::pair<std::size_t, std::size_t> share(std::size_t values, int r) const { return share_of(values, r, size_); }
  static std::size_t count_of(const std::pair<std::size_t, std::size_t>& share) { return share.second - share.first; }
  Tensor part_of(const Tensor& whole, int r) const {
    const auto [begin, end] = share(static_cast<std::size_t>(whole.numel()), r);
    return whole.narrow(0, static_cast<std::int64_t>(begin), static_cast<std::int64_t>(end - begin));
  }

  // f for each rank's share, all at once.
  template <class F>
  void each_share(const Tensor& whole, F&& f) {
    std::vector<Work> work;
    if (nccl_) nccl_->startCoalescing();
    for (int r = 0; r < size_; ++r) {
      const Tensor part = part_of(whole, r);
      if (part.numel() > 0) work.push_back(f(r, part));
    }
    if (nccl_) work = {nccl_->endCoalescing()};
    for (const Work& w : work) {
      if (w) w->wait();
    }
    settle();
  }

  // An array of a device that gloo carries goes through the host.
  Work broadcast(int root, const Tensor& part) {
    c10d::BroadcastOptions options;
    options.rootRank = root;
    std::vector<Tensor> tensors = {part};
    if (nccl_) return nccl_->broadcast(tensors, options);
    if (part.is_cuda()) {
      tensors[0] = part.cpu();
      staged_.emplace_back(tensors[0], part);
    }
    tensors[0] = tensors[0].view(torch::kUInt8);
    return gloo_->broadcast(tensors, options);
  }
  void settle() {
    for (auto& [from, to] : staged_) to.copy_(from);
    staged_.clear();
  }

  // Everyone gives each rank what is in that one's share, a block at a time, so that little is held beside the array.
  void sum_blocks(const Tensor& whole, const Tensor& sum) {
    const auto ranks = static_cast<std::size_t>(size_), all = static_cast<std::size_t>(whole.numel());
    std::size_t longest = 0;
    for (int r = 0; r < size_; ++r) longest = std::max(longest, count_of(share(all, r)));
    const auto block = static_cast<std::int64_t>(std::min(longest, kBlock));
    given_.resize(ranks * static_cast<std::size_t>(block));
    taken_.resize(given_.size());
    Tensor in = tensor_over(given_.data(), given_.size(), torch::kFloat32);
    Tensor out = tensor_over(taken_.data(), taken_.size(), torch::kFloat32);
    for (std::int64_t done = 0; done < static_cast<std::int64_t>(longest); done += block) {
      const auto within = [&](const Tensor& part) {
        const std::int64_t first = std::min(done, part.numel());
        return part.narrow(0, first, std::min(block, part.numel() - first));
      };
      for (int r = 0; r < size_; ++r) {
        const Tensor part = within(part_of(whole, r));
        in.narrow(0, r * block, part.numel()).copy_(part);
      }
      attempt(-1, [&] {
        std::vector<std::int64_t> evenly;
        gloo_->alltoall_base(out, in, evenly, evenly)->wait();
      });
      const auto mine = static_cast<std::size_t>(within(sum).numel());
      for (std::size_t i = 0; i < mine; ++i) {
        for (std::size_t r = 1; r < ranks; ++r) taken_[i] += taken_[r * static_cast<std::size_t>(block) + i];
      }
      within(sum).copy_(out.narrow(0, 0, static_cast<std::int64_t>(mine)));
    }
  }

  // What each rank says, to all.
  std::vector<std::string> gather(const std::string& mine) {
    std::vector<std::string> all(static_cast<std::size_t>(size_));
    for (int r = 0; r < size_; ++r) {
      if (r == rank_) {
        all[static_cast<std::size_t>(r)] = mine;
        for (int to = 0; to < size_; ++to) {
          if (to != rank_) send(to, mine);
        }
      } else {
        all[static_cast<std::size_t>(r)] = receive(r);
      }
    }
    return all;
  }

  void send_bytes(int to, const void* data, std::size_t size) {
    std::vector<Tensor> tensors = {tensor_over(static_cast<const char*>(data), size, torch::kUInt8)};
    gloo_->send(tensors, to, 0)->wait();
  }
  void receive_bytes(int from, void* data, std::size_t size) {
    std::vector<Tensor> tensors = {tensor_over(static_cast<char*>(data), size, torch::kUInt8)};
    gloo_->recv(tensors, from, 0)->wait();
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

  int rank_, size_, local_rank_;
  std::string device_ = "cpu";
  c10::intrusive_ptr<c10d::Store> store_;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo_;
  c10::intrusive_ptr<c10d::Backend> nccl_;  // where every rank has a device of its own
  std::string lost_;                        // why no more can be asked of the group
  std::vector<float> given_, taken_;
  std::vector<std::pair<Tensor, Tensor>> staged_;  // on the host, and where it goes
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

using Clock = std::chrono::steady_clock;

milliseconds left_until(Clock::time_point deadline) {
  return std::max(kPause, std::chrono::duration_cast<milliseconds>(deadline - Clock::now()));
}

Error refusal(const RankPlace& place, const std::string& why) {
  return Error(fmt::format("MASTER_ADDR = \"{}\", MASTER_PORT = {}: {}", place.host, place.port, why));
}

// Where ranks say that they are there.
c10::intrusive_ptr<c10d::Store> reach_store(const RankPlace& place, milliseconds wait, Clock::time_point deadline) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(place.port);
  options.isServer = place.rank == 0 && !place.hosted;
  options.waitWorkers = false;
  while (true) {
    try {
      // libtorch tries for up to twice as long as it is told: not all of the time at once.
      options.timeout = options.isServer ? wait : std::min(left_until(deadline), kAttempt);
      auto store = c10::make_intrusive<c10d::TCPStore>(place.host, options);
      store->setTimeout(wait);
      return c10::make_intrusive<c10d::PrefixStore>("gipo/" + place.attempt, std::move(store));
    } catch (const std::exception& e) {
      const auto told = [&](const std::string& what) {
        return refusal(place, fmt::format("rank {} of {} {} ({})", place.rank, place.ranks, what, first_line(e)));
      };
      if (options.isServer) throw told("cannot listen there");
      if (Clock::now() >= deadline) {
        throw told(fmt::format("found nobody who answers there within {:g} s", place.wait_seconds));
      }
    }
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace

std::shared_ptr<RankGroup> join_ranks(const RankPlace& place) {
  const Silence silence;
  const milliseconds wait(static_cast<std::int64_t>(1000 * place.wait_seconds));
  const Clock::time_point deadline = Clock::now() + wait;
  const c10::intrusive_ptr<c10d::Store> store = reach_store(place, wait, deadline);
  const auto key = [](int rank) { return "rank/" + std::to_string(rank); };
  int missing = 0;
  try {
    store->set(key(place.rank), std::string("here"));
    for (int r = 0; r < place.ranks; ++r) {
      missing = r;
      store->wait({key(r)}, left_until(deadline));
    }
  } catch (const std::exception&) {
    throw refusal(place,
                  fmt::format("rank {} of {} has not come within {:g} s", missing, place.ranks, place.wait_seconds));
  }
  try {
    return std::make_shared<TorchGroup>(place, store);
  } catch (const std::exception& e) {
    throw refusal(
        place, fmt::format("rank {} of {} cannot connect to the others ({})", place.rank, place.ranks, first_line(e)));
  }
}

std::unique_ptr<RankHost> host_ranks() { return std::make_unique<StoreHost>(); }

}  // namespace gipo
