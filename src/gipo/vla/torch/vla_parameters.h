// The parameters of the large model as flat arrays, and what AdamW keeps to train them. Of ranks that train it together each has all
// parameters, and a share of the rest.
#pragma once

#include <array>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include "gipo/vla/torch/vla_network.h"

namespace gipo {

struct RankArray;

namespace vla {

// The bytes of a tensor, in pieces.
void hand_over(const Tensor& t, const std::function<void(std::string_view)>& take);

class Parameters {
 public:
  Parameters(const VlaSetup& setup, at::Device device, at::ScalarType type);

  Arrays arrays() const { return {{{frozen_, {}}, {value_, gradient_}}, places_}; }
  Arrays averaged() const { return {{{frozen_, {}}, {average_, {}}}, places_}; }  // where an average is kept
  // What is kept here of the low halves of a tensor with so many values, and which of these is its first. Undefined: nothing is.
  std::pair<Tensor, std::int64_t> low_of(std::size_t index, std::int64_t values) const;
  void clear_low();
  void begin_average();

  void gradient_changed() { summed_ = false; }
  // Of the gradient: of all but the value head, and of that.
  std::array<double, 2> norms();
  // AdamW. The norm of the whole gradient; where that is not finite nothing is done.
  double step(const VlaStep& step);

  // As LargeModel has them.
  std::size_t state_bytes() const;
  void save_state(const std::function<void(std::string_view)>& take) const;
  void load_state(const std::function<void(char* out, std::size_t size)>& give);

 private:
  struct Group {  // of tensors that follow each other
    std::int64_t begin, end;
    bool value_head;
  };
  struct Share {
    std::int64_t begin = 0, end = 0;
    Share within(std::int64_t first, std::int64_t last) const;  // what of [first, last) is in it
  };

  std::int64_t head_begin() const { return groups_.back().begin; }  // of the value head, which lies behind all else
  Tensor norm_between(std::int64_t begin, std::int64_t end);
  std::vector<Tensor> states() const;
  int rank() const;
  Share share(int rank) const;
  RankArray array_of(const Tensor& t) const;
  void each_piece_of_others(const std::function<void(int rank, std::int64_t values)>& f) const;

  at::Device device_;
  at::ScalarType type_;
  RankGroup* ranks_;
  std::vector<Arrays::Place> places_;  // of each tensor
  std::vector<Group> groups_;
  Tensor frozen_, value_, gradient_;  // what is not trained; what is, and its gradient
  Share share_;                       // of what is trained
  Tensor low_, first_, second_;       // of the share
  Tensor average_, average_low_;      // of what is trained, where one is kept; its low halves
  std::int64_t steps_ = 0;
  bool summed_ = false;  // the gradient, over ranks
};

}  // namespace vla
}  // namespace gipo
