#include "gipo/learner/team_net.h"

#include <vector>

#include "gipo/policy/mlp.h"

namespace gipo::team {

Net net_of(const MlpShape& shape, std::size_t extra) {
  Net net;
  int in = static_cast<int>(shape.input);
  std::vector<int> widths(shape.hidden.begin(), shape.hidden.end());
  widths.push_back(static_cast<int>(shape.output));
  for (const int out : widths) {
    Layer& y = net.layers[net.count++];
    y = {in, out, fours(in + 1), odd_fours(out), odd_fours(in + 1), net.parameters};
    net.parameters += y.rows * y.stride;
    in = out;
  }
  net.extra = static_cast<int>(extra);
  net.extra_at = net.parameters;
  net.parameters += fours(net.extra);
  return net;
}

}  // namespace gipo::team
