#include "gipo/learner/cuda/small_network.h"

#include <algorithm>

namespace gipo::cuda {

bool can_be_small(const MlpShape& shape) {
  return !shape.layer_norm && shape.hidden.size() < kSmallLayers && shape.input <= 512 && shape.output <= 512 &&
         std::ranges::all_of(shape.hidden, [](std::int64_t width) { return width <= 512; });
}

SmallNetwork small_network(const MlpShape& shape, int rows) {
  SmallNetwork net{};
  int parameters = 0, end = 0, in = static_cast<int>(shape.input);
  const auto place = [&end](int floats) {
    const int begin = end;
    end += (floats + 3) / 4 * 4;
    return begin;
  };
  net.rows = rows;
  net.activation = shape.activation;
  net.input = place(rows * small_stride(in));
  for (std::size_t i = 0; i <= shape.hidden.size(); ++i) {
    const int out =
        static_cast<int>(i < shape.hidden.size() ? shape.hidden[i] : static_cast<std::int64_t>(shape.output));
    SmallLayer& l = net.layer[net.layers++];
    l.in = in;
    l.out = out;
    l.parameters = parameters;
    parameters += (in + 1) * out;
    l.weights = place(whole_eights(out) * small_stride(in));
    l.biases = place(whole_eights(out));
    l.outputs = place(rows * small_stride(out));
    in = out;
  }
  net.forward_floats = end;
  // The last tile of 16 columns may reach beyond the last row.
  for (int i = 0; i < net.layers; ++i) net.layer[i].delta = place(rows * small_stride(net.layer[i].out) + 8);
  net.floats = end;
  return net;
}

}  // namespace gipo::cuda
