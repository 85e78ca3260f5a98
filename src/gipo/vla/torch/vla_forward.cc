#include "gipo/vla/torch/vla_network.h"

namespace gipo::vla {
namespace {

bool keeps(std::int64_t recomputed, std::size_t index) {
  return recomputed >= 0 && static_cast<std::int64_t>(index) >= recomputed;
}

}  // namespace

Tensor Network::run(Forward& f, const Tensor& images, const Tensor& proprio, bool keep) const {
  const Rows& rows = f.rows;
  std::vector<Tensor> features(2);
  const auto tower = [&](std::size_t t) {
    features[t] = run_tower(towers_[t], f.towers[t], images, rows.images[t], keep && trains_vision());
  };
  if (keep) {
    tower(0), tower(1);
  } else {
    run_both([&] { tower(0); }, [&] { tower(1); }, device_);
  }
  const bool projector_trained = projector_.layers[0].by_weight.defined();
  const Tensor patches = projector_.forward(at::cat(features, 1), keep && projector_trained ? &f.projector : nullptr);
  Tensor x = at::zeros({rows.rows, c_.width}, embedding_.options());
  x.index_copy_(0, rows.token_rows, embedding_.index_select(0, rows.tokens));
  x.index_copy_(0, rows.patch_rows, patches);
  if (proprio.defined()) {
    x.index_copy_(0, rows.proprio_rows, proprio_.forward(proprio, keep ? &f.proprio : nullptr));
  }
  Tensor y;
  if (keep) f.layers.resize(layers_.size());
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    LayerState s;
    std::tie(x, y) = run_layer(i, s, x, y, rows);
    if (keep) f.layers[i] = kept(i, std::move(s));
  }
  auto [last, hidden] = add_norm(x, y, norm_, c_.rms_epsilon);
  if (keep) f.last = last;
  return hidden;
}

Tensor Network::patches_of(const Tensor& images) const {  // [images * patches, 3, patch * patch], bytes
  const std::int64_t side = c_.image / c_.patch;
  return images.view({-1, side, c_.patch, side, c_.patch, 3})
      .permute({0, 1, 3, 5, 2, 4})
      .reshape({-1, 3, c_.patch * c_.patch});
}

// Features of the patches, [images * patches, width].
Tensor Network::run_tower(const Tower& tower, TowerState& state, const Tensor& images, const Lengths& lengths,
                          bool keep) const {
  const std::int64_t count = images.size(0), width = tower.config->width, prefix = tower.config->prefix();
  const Tensor patches = patches_of(images).to(at::kFloat).mul_(tower.scale).add_(tower.shift).flatten(1).to(type_);
  Tensor x = tower.patch.forward(patches).view({count, c_.patches(), width}).add_(tower.position);
  if (prefix > 0) {
    x = at::cat({tower.prefix[0].expand({count, -1, -1}), tower.prefix[1].expand({count, -1, -1}), x}, 1);
  }
  const std::int64_t tokens = prefix + c_.patches();
  x = x.reshape({count * tokens, width});
  if (keep) {
    state.patches = patches;
    state.blocks.resize(tower.blocks.size());
  }
  for (std::size_t i = 0; i < tower.blocks.size(); ++i) {
    BlockState s;
    const Tensor begin = x;
    x = run_block(tower, i, s, x, lengths);
    if (!keep) continue;
    if (!keeps(recompute_.blocks, i)) s = {};
    if (!tower.config->layer_scale) s.y1 = s.y2 = Tensor();
    s.x = begin;
    state.blocks[i] = std::move(s);
  }
  return x.view({count, tokens, width}).narrow(1, prefix, c_.patches()).reshape({-1, width});
}

Tensor Network::run_block(const Tower& tower, std::size_t index, BlockState& s, const Tensor& x,
                          const Lengths& lengths) const {
  const Block& b = tower.blocks[index];
  const std::int64_t heads = tower.config->heads, size = tower.config->width / heads;
  s.x = x;
  Tensor normed;
  const auto norm = [&](const LayerNorm& n, const Tensor& in, Tensor& mean, Tensor& inverse) {
    std::array<Tensor, 3> out = n.forward(in);
    normed = out[0], mean = out[1], inverse = out[2];
  };
  norm(b.norm1, x, s.mean1, s.inverse1);
  s.qkv = b.qkv.forward(normed).view({-1, 3, heads, size});
  s.attended = attend(s.qkv.select(1, 0), s.qkv.select(1, 1), s.qkv.select(1, 2), lengths, lengths);
  s.y1 = b.proj.forward(s.attended.out.view({-1, tower.config->width}));
  s.middle = b.scale1.defined() ? at::addcmul(x, s.y1, b.scale1) : at::add(x, s.y1);
  norm(b.norm2, s.middle, s.mean2, s.inverse2);
  s.hidden = b.fc1.forward(normed);
  s.y2 = b.fc2.forward(at::gelu(s.hidden));
  return b.scale2.defined() ? at::addcmul(s.middle, s.y2, b.scale2) : at::add(s.middle, s.y2);
}

// x and what is to be added to it, of the layer before; and of this one.
std::pair<Tensor, Tensor> Network::run_layer(std::size_t index, LayerState& s, const Tensor& x, const Tensor& y,
                                             const Rows& rows) const {
  Tensor normed;
  std::tie(s.x, normed) = add_norm(x, y, layers_[index].norm1, c_.rms_epsilon);
  const Tensor product = gate_product(run_to_product(index, s, normed, rows));
  return {s.middle, layers_[index].down.forward(product)};
}

// From the first norm to gate and up.
const Tensor& Network::run_to_product(std::size_t index, LayerState& s, const Tensor& normed, const Rows& rows) const {
  const Layer& l = layers_[index];
  const std::int64_t size = c_.width / c_.heads;
  Tensor x = s.x;
  if (is_last(index)) {
    s.q = l.q.forward(normed.index_select(0, rows.used_rows)).view({-1, 1, c_.heads, size});
    s.kv = l.kv.forward(normed).view({-1, 2, c_.heads, size});
    rotate(s.q, 1, rows.used_positions, table_, false);
    rotate(s.kv, 1, rows.positions, table_, false);
    s.attended = attend(s.q.select(1, 0), s.kv.select(1, 0), s.kv.select(1, 1), rows.used, rows.all);
    x = x.index_select(0, rows.used_rows);
  } else {
    s.qkv = l.qkv.forward(normed).view({-1, 3, c_.heads, size});
    rotate(s.qkv, 2, rows.positions, table_, false);
    s.attended = attend(s.qkv.select(1, 0), s.qkv.select(1, 1), s.qkv.select(1, 2), rows.all, rows.all);
  }
  Tensor normed2;
  std::tie(s.middle, normed2) = add_norm(x, l.o.forward(s.attended.out.view({-1, c_.width})), l.norm2, c_.rms_epsilon);
  s.gate_up = l.gate_up.forward(normed2);
  return s.gate_up;
}

LayerState Network::kept(std::size_t index, LayerState s) const {
  const Recompute& r = recompute_;
  if (!keeps(r.layers, index)) {
    LayerState only;
    only.x = s.x;
    return only;
  }
  if (!keeps(r.products < 0 ? -1 : r.layers + r.products, index)) s.gate_up = Tensor();
  return s;
}

Tensor Network::logits_of(const Tensor& hidden) const {
  return at::mm(hidden.to(at::kFloat), head_.to(at::kFloat).t());
}
Tensor Network::first_rows(const Forward& f, const Tensor& hidden) const {
  return hidden.view({f.rows.n, c_.actions(), c_.width}).select(1, 0);
}
Tensor Network::values_of(const Tensor& first, std::vector<Tensor>* seen) const {
  return value_.forward(first, seen).to(at::kFloat).view(-1);
}

}  // namespace gipo::vla
