#include "gipo/vla/torch/vla_network.h"

namespace gipo::vla {

void Network::begin_gradient() {
  for (const Tensor& t : cleared_) t.zero_();
  first_ = true;
}

Tensor Network::head_gradient(const Forward& f, const Tensor& by_logits) const {
  if (by_head_.defined()) by_head_.add_(at::mm(by_logits.t(), f.hidden.to(at::kFloat)));
  return at::mm(by_logits, head_.to(at::kFloat)).to(type_);
}

Tensor Network::value_gradient(const std::vector<Tensor>& seen, const Tensor& by_values, bool wanted) const {
  return value_.gradient(by_values.view({-1, 1}).to(type_), seen, wanted, first_);
}

void Network::backward(Forward& f, const Tensor& by_hidden) const {
  const Rows& rows = f.rows;
  Tensor by = norm_gradient(f.last, norm_, by_hidden, {}, by_norm_, c_.rms_epsilon).first;
  for (std::size_t i = layers_.size(); i-- > 0;) {
    by = layer_gradient(i, f.layers[i], by, rows);
    f.layers[i] = {};
  }
  if (!f.proprio.empty()) proprio_.gradient(by.index_select(0, rows.proprio_rows), f.proprio, false, first_);
  if (by_embedding_.defined()) by_embedding_.index_put_({rows.tokens}, by.index_select(0, rows.token_rows), true);
  if (f.projector.empty()) return;
  const Tensor by_features =
      projector_.gradient(by.index_select(0, rows.patch_rows), f.projector, trains_vision(), first_);
  by = Tensor();
  std::int64_t at = 0;
  for (std::size_t t = 0; trains_vision() && t < 2; ++t) {
    const std::int64_t width = towers_[t].config->width;
    tower_gradient(towers_[t], f.towers[t], by_features.narrow(1, at, width), rows.images[t]);
    at += width;
  }
}

Tensor Network::layer_gradient(std::size_t index, LayerState& s, const Tensor& by_out, const Rows& rows) const {
  const Layer& l = layers_[index];
  if (!s.middle.defined()) {
    run_to_product(index, s, add_norm(s.x, {}, l.norm1, c_.rms_epsilon).second, rows);
  } else if (!s.gate_up.defined()) {
    s.gate_up = l.gate_up.forward(add_norm(s.middle, {}, l.norm2, c_.rms_epsilon).second);
  }
  const Tensor product = gate_gradient(s.gate_up, l.down.input_gradient(by_out));
  l.down.weight_gradient(by_out, product, first_);
  auto [by_middle, normed2] =
      norm_gradient(s.middle, l.norm2, l.gate_up.input_gradient(s.gate_up), by_out, l.by_norm2, c_.rms_epsilon);
  l.gate_up.weight_gradient(s.gate_up, normed2, first_);
  s.gate_up = s.middle = normed2 = Tensor();

  const Tensor by_attended = l.o.input_gradient(by_middle).view({-1, c_.heads, c_.width / c_.heads});
  l.o.weight_gradient(by_middle, s.attended.out.view({-1, c_.width}), first_);
  if (is_last(index)) return last_gradient(l, s, by_attended, by_middle, rows);
  const auto [by_q, by_k, by_v] = attend_gradient(by_attended, s.qkv.select(1, 0), s.qkv.select(1, 1),
                                                  s.qkv.select(1, 2), s.attended, rows.all, rows.all);
  const Tensor flat = join_rotated({by_q, by_k, by_v}, 2, rows.positions, table_).view({-1, 3 * c_.width});
  const auto [by_x, normed] =
      norm_gradient(s.x, l.norm1, l.qkv.input_gradient(flat), by_middle, l.by_norm1, c_.rms_epsilon);
  l.qkv.weight_gradient(flat, normed, first_);
  return by_x;
}

Tensor Network::last_gradient(const Layer& l, const LayerState& s, const Tensor& by_attended, const Tensor& by_middle,
                              const Rows& rows) const {
  const auto [by_q, by_k, by_v] = attend_gradient(by_attended, s.q.select(1, 0), s.kv.select(1, 0), s.kv.select(1, 1),
                                                  s.attended, rows.used, rows.all);
  const Tensor flat_q = join_rotated({by_q}, 1, rows.used_positions, table_).view({-1, c_.width});
  const Tensor flat_kv = join_rotated({by_k, by_v}, 1, rows.positions, table_).view({-1, 2 * c_.width});
  // No row is used twice, so that the order of additions does not matter.
  const Tensor by_normed = l.kv.input_gradient(flat_kv).index_add_(0, rows.used_rows, l.q.input_gradient(flat_q));
  const Tensor by_sum = at::zeros_like(by_normed).index_copy_(0, rows.used_rows, by_middle);
  const auto [by_x, normed] = norm_gradient(s.x, l.norm1, by_normed, by_sum, l.by_norm1, c_.rms_epsilon);
  l.q.weight_gradient(flat_q, normed.index_select(0, rows.used_rows), first_);
  l.kv.weight_gradient(flat_kv, normed, first_);
  return by_x;
}

void Network::tower_gradient(const Tower& tower, TowerState& state, const Tensor& by_features,
                             const Lengths& lengths) const {
  const std::int64_t width = tower.config->width, prefix = tower.config->prefix();
  const Tensor in_images = by_features.reshape({-1, c_.patches(), width});
  Tensor by = prefix > 0 ? at::constant_pad_nd(in_images, {0, 0, prefix, 0}) : in_images;
  by = by.reshape({-1, width});
  for (std::size_t i = tower.blocks.size(); i-- > 0;) {
    by = block_gradient(tower, i, state.blocks[i], by, lengths);
    state.blocks[i] = {};
  }
  by = by.view({-1, prefix + c_.patches(), width});
  if (prefix > 0) {
    tower.by_prefix[0].add_(by.narrow(1, 0, 1).sum(0, true));
    tower.by_prefix[1].add_(by.narrow(1, 1, prefix - 1).sum(0, true));
    by = by.narrow(1, prefix, c_.patches());
  }
  tower.by_position.add_(by.sum(0, true));
  tower.patch.weight_gradient(by.reshape({-1, width}), state.patches, first_);
}

Tensor Network::block_gradient(const Tower& tower, std::size_t index, BlockState& s, const Tensor& by_out,
                               const Lengths& lengths) const {
  const Block& b = tower.blocks[index];
  const std::int64_t heads = tower.config->heads, width = tower.config->width;
  if (!s.middle.defined()) run_block(tower, index, s, Tensor(s.x), lengths);
  const auto scaled = [](const Tensor& by, const Tensor& y, const Tensor& scale, const Tensor& by_scale) {
    if (!scale.defined()) return by;
    if (by_scale.defined()) by_scale.add_(at::mul(by, y).sum(0));
    return at::mul(by, scale);
  };
  const auto normed = [](const LayerNorm& n, const Tensor& x) { return n.forward(x)[0]; };
  const Tensor by_y2 = scaled(by_out, s.y2, b.scale2, b.by_scale2);
  b.fc2.weight_gradient(by_y2, at::gelu(s.hidden), first_);
  const Tensor by_hidden = at::gelu_backward(b.fc2.input_gradient(by_y2), s.hidden);
  b.fc1.weight_gradient(by_hidden, normed(b.norm2, s.middle), first_);
  const Tensor by_middle =
      b.norm2.gradient(b.fc1.input_gradient(by_hidden), s.middle, s.mean2, s.inverse2).add_(by_out);
  const Tensor by_y1 = scaled(by_middle, s.y1, b.scale1, b.by_scale1);
  b.proj.weight_gradient(by_y1, s.attended.out.view({-1, width}), first_);
  const Tensor by_attended = b.proj.input_gradient(by_y1).view({-1, heads, width / heads});
  const auto [by_q, by_k, by_v] = attend_gradient(by_attended, s.qkv.select(1, 0), s.qkv.select(1, 1),
                                                  s.qkv.select(1, 2), s.attended, lengths, lengths);
  const Tensor by_qkv = join_rotated({by_q, by_k, by_v}, 0, {}, {}).view({-1, 3 * width});
  b.qkv.weight_gradient(by_qkv, normed(b.norm1, s.x), first_);
  return b.norm1.gradient(b.qkv.input_gradient(by_qkv), s.x, s.mean1, s.inverse1).add_(by_middle);
}

}  // namespace gipo::vla
