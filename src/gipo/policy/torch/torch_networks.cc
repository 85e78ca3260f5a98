#include "gipo/policy/torch/torch_networks.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <tuple>
#include <utility>

#include "gipo/core/error.h"

namespace gipo {
namespace {

using torch::Tensor;

Tensor whole_numbers(const std::vector<std::int64_t>& values) {
  return torch::tensor(values, torch::TensorOptions().dtype(torch::kInt64));
}

// A recurrent layer over packed rows on the CPU, given what its input adds to the gates. libtorch's own takes some fifty
// small operations for each step and its gradient, this one two products.
//   h' = (1 - z) n + z h, r and z = sigmoid(seen + kept), n = tanh(seen + r kept), kept = W h + b
struct CpuGru : torch::autograd::Function<CpuGru> {
  // seen [rows, 3 size], first [sequences, size], weight [3 size, size], bias [3 size] -> [rows, size]
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& seen, const Tensor& first,
                        const Tensor& weight, const Tensor& bias, const Tensor& counts) {
    const std::int64_t rows = seen.size(0), size = weight.size(1);
    // Beside the states: those before each row, the three gates, and what the state adds to the third.
    Tensor out = torch::empty({rows, size}), before = torch::empty({rows, size}),
           gates = torch::empty({rows, 4 * size});
    const Tensor turned = weight.t();
    for (std::int64_t t = 0, row = 0, last = 0; t < counts.size(0); ++t) {
      const std::int64_t n = counts.const_data_ptr<std::int64_t>()[t];
      before.narrow(0, row, n).copy_(t == 0 ? first.narrow(0, 0, n) : out.narrow(0, last, n));
      const Tensor kept = torch::addmm(bias, before.narrow(0, row, n), turned);
      for (std::int64_t i = 0; i < n; ++i) {
        const float *s = seen.const_data_ptr<float>() + (row + i) * 3 * size,
                    *k = kept.const_data_ptr<float>() + i * 3 * size,
                    *h = before.const_data_ptr<float>() + (row + i) * size;
        float *g = gates.data_ptr<float>() + (row + i) * 4 * size, *o = out.data_ptr<float>() + (row + i) * size;
        for (std::int64_t j = 0; j < size; ++j) {
          const float reset = sigmoid(s[j] + k[j]), update = sigmoid(s[size + j] + k[size + j]), part = k[2 * size + j];
          const float fresh = std::tanh(s[2 * size + j] + reset * part);
          g[j] = reset, g[size + j] = update, g[2 * size + j] = fresh, g[3 * size + j] = part;
          o[j] = fresh + update * (h[j] - fresh);
        }
      }
      last = row;
      row += n;
    }
    context->save_for_backward({before, gates, weight, counts});
    return out;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& d_outputs) {
    const auto saved = context->get_saved_variables();
    const Tensor &before = saved[0], &gates = saved[1], &weight = saved[2], &counts = saved[3],
                 d_out = d_outputs[0].contiguous();
    const std::int64_t rows = before.size(0), size = weight.size(1), steps = counts.size(0);
    const std::int64_t* const count = counts.const_data_ptr<std::int64_t>();
    Tensor d_seen = torch::empty({rows, 3 * size}), d_kept = torch::empty({rows, 3 * size});
    Tensor d_state = torch::zeros({steps > 0 ? count[0] : 0, size});  // what comes back to each sequence
    for (std::int64_t t = steps - 1, row = rows; t >= 0; --t) {
      const std::int64_t n = count[t];
      row -= n;
      for (std::int64_t i = 0; i < n; ++i) {
        const float *g = gates.const_data_ptr<float>() + (row + i) * 4 * size,
                    *h = before.const_data_ptr<float>() + (row + i) * size,
                    *d = d_out.const_data_ptr<float>() + (row + i) * size;
        float *ds = d_seen.data_ptr<float>() + (row + i) * 3 * size,
              *dk = d_kept.data_ptr<float>() + (row + i) * 3 * size, *back = d_state.data_ptr<float>() + i * size;
        for (std::int64_t j = 0; j < size; ++j) {
          const float reset = g[j], update = g[size + j], fresh = g[2 * size + j], part = g[3 * size + j];
          const float of_state = back[j] + d[j];
          const float of_fresh = of_state * (1 - update) * (1 - fresh * fresh);
          ds[j] = dk[j] = of_fresh * part * reset * (1 - reset);
          ds[size + j] = dk[size + j] = of_state * (h[j] - fresh) * update * (1 - update);
          ds[2 * size + j] = of_fresh;
          dk[2 * size + j] = of_fresh * reset;
          back[j] = of_state * update;
        }
      }
      d_state.narrow(0, 0, n).addmm_(d_kept.narrow(0, row, n), weight);
    }
    return {d_seen, Tensor(), torch::mm(d_kept.t(), before), d_kept.sum(0), Tensor()};
  }

 private:
  static float sigmoid(float x) { return 1 / (1 + std::exp(-x)); }
};

}  // namespace

PackedRows pack(const std::vector<std::vector<std::int64_t>>& sequences, torch::Device device) {
  std::vector<std::int64_t> present, order, counts;
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    if (!sequences[s].empty()) present.push_back(static_cast<std::int64_t>(s));
  }
  const auto rows = [&](std::int64_t s) -> const auto& { return sequences[static_cast<std::size_t>(s)]; };
  std::ranges::stable_sort(present, std::greater<>(), [&](std::int64_t s) { return rows(s).size(); });
  for (std::size_t t = 0; !present.empty() && t < rows(present[0]).size(); ++t) {
    const std::size_t before = order.size();
    for (const std::int64_t s : present) {
      if (t < rows(s).size()) order.push_back(rows(s)[t]);
    }
    counts.push_back(static_cast<std::int64_t>(order.size() - before));
  }
  // The last row of each of those that are present, where it lies then.
  std::vector<std::int64_t> last(present.size());
  for (std::size_t t = 0, first = 0; t < counts.size(); first += static_cast<std::size_t>(counts[t++])) {
    for (std::size_t i = 0; i < static_cast<std::size_t>(counts[t]); ++i)
      last[i] = static_cast<std::int64_t>(first + i);
  }
  const Tensor from = whole_numbers(order).to(device);
  return {from, from.argsort(), whole_numbers(counts), whole_numbers(present).to(device),
          whole_numbers(last).to(device)};
}

WindowedRows windows_of(const std::vector<std::vector<std::int64_t>>& sequences, std::int64_t steps,
                        torch::Device device) {
  const std::int64_t held = steps - 1, states = static_cast<std::int64_t>(sequences.size()) * held;
  std::size_t rows = 0;
  for (const auto& all : sequences) rows += all.size();
  const auto width = static_cast<std::size_t>(steps);
  std::vector<std::int64_t> places(rows * width), sequence(rows), present, last;
  std::vector<float> back(rows * width, 0.0f), lengths;
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    const std::vector<std::int64_t>& all = sequences[s];
    if (all.empty()) continue;
    present.push_back(static_cast<std::int64_t>(s));
    last.push_back(all.back());
    lengths.push_back(static_cast<float>(all.size()));
    for (std::size_t t = 0; t < all.size(); ++t) {
      const auto row = static_cast<std::size_t>(all[t]);
      GIPO_CHECK(row < rows);
      sequence[row] = present.back();
      for (std::size_t j = 0; j < width; ++j) {
        const std::int64_t moment = static_cast<std::int64_t>(t + j) - held;  // negative: before the sequence
        places[row * width + j] =
            moment >= 0 ? states + all[static_cast<std::size_t>(moment)] : (present.back() + 1) * held + moment;
        if (moment < 0) back[row * width + j] = static_cast<float>(-moment);
      }
    }
  }
  return {whole_numbers(places).to(device),
          torch::tensor(back).reshape({static_cast<std::int64_t>(rows), steps}).to(device),
          whole_numbers(sequence).to(device),
          whole_numbers(present).to(device),
          whole_numbers(last).to(device),
          torch::tensor(lengths).unsqueeze(1).to(device)};
}

const Tensor& TorchNetworks::next() {
  GIPO_CHECK(used_ < parameters_.size());
  return parameters_[used_++];
}

Tensor TorchNetworks::conv(const std::string&, const Tensor& x, const Conv& c) {
  const Tensor &weight = next(), &bias = next();
  return torch::conv2d(x, weight, bias, c.stride, c.padding);
}

Tensor TorchNetworks::linear(const std::string&, const Tensor& x, std::int64_t) {
  const Tensor &weight = next(), &bias = next();
  return torch::linear(x, weight, bias);
}

Tensor TorchNetworks::norm(const std::string&, const Tensor& x) {
  const Tensor &weight = next(), &bias = next();
  return torch::layer_norm(x, {x.size(-1)}, weight, bias, kNormEpsilon);
}

// Each choice has its own part of the table.
Tensor TorchNetworks::lookup(const std::string&, const Tensor& x, const std::vector<std::int64_t>& choices) {
  std::vector<Tensor> rows;
  std::int64_t first = 0;
  for (std::size_t c = 0; c < choices.size(); first += choices[c++]) {
    rows.push_back(x.narrow(1, static_cast<std::int64_t>(c), 1) + first);
  }
  return torch::embedding(next(), torch::cat(rows, 1));
}

Tensor TorchNetworks::parameter(const std::string&, const std::vector<std::int64_t>&) { return next(); }

Tensor TorchNetworks::activate(const Tensor& x, Activation activation) {
  return activation == Activation::kTanh ? torch::tanh(x) : torch::relu(x);
}

Tensor TorchNetworks::gru(const std::string&, const Tensor& x, std::int64_t) {
  const Tensor &weight_ih = next(), &weight_hh = next(), &bias_ih = next(), &bias_hh = next();
  GIPO_CHECK(memory_ != nullptr);
  if (!memory_->packed) {
    return memory_->after = torch::gru_cell(x, memory_->state, weight_ih, weight_hh, bias_ih, bias_hh);
  }
  const PackedRows& packed = *memory_->packed;
  GIPO_CHECK(packed.order.size(0) == x.size(0));
  const Tensor first = memory_->state.index_select(0, packed.sequences);
  const Tensor rows = x.index_select(0, packed.order);
  const Tensor all =
      x.is_cpu()
          ? CpuGru::apply(torch::linear(rows, weight_ih, bias_ih), first, weight_hh, bias_hh, packed.counts)
          : std::get<0>(torch::gru(rows, packed.counts, first.unsqueeze(0), {weight_ih, weight_hh, bias_ih, bias_hh},
                                   true, 1, 0.0, at::GradMode::is_enabled(), false));
  memory_->after = memory_->state.index_copy(0, packed.sequences, all.detach().index_select(0, packed.last));
  return all.index_select(0, packed.inverse);
}

// The state holds the windows of all blocks, and then how many steps are in them.
Tensor TorchNetworks::window(const Tensor& x, std::int64_t block, const Window& w) {
  GIPO_CHECK(memory_ != nullptr);
  const std::int64_t held = w.steps - 1, of_block = held * w.size;
  const Tensor& state = memory_->state;
  const Tensor before = state.narrow(1, block * of_block, of_block).reshape({-1, held, w.size});
  const Tensor steps = state.narrow(1, kMemoryBlocks * of_block, 1);
  const auto finish = [&](const Tensor& windows, const Tensor& lengths) {
    memory_->windows.push_back(windows.detach().narrow(1, 1, held).flatten(1));
    if (block + 1 < kMemoryBlocks) return Tensor();
    memory_->windows.push_back(lengths.clamp_max(static_cast<double>(held)));
    return torch::cat(std::exchange(memory_->windows, {}), 1);
  };
  if (!memory_->windowed) {
    const Tensor all = torch::cat({before, x.unsqueeze(1)}, 1);
    memory_->hidden = torch::arange(held, -1, -1, state.options()).unsqueeze(0) > steps;
    memory_->after = finish(all, steps + 1);
    return all;
  }
  const WindowedRows& rows = *memory_->windowed;
  GIPO_CHECK(rows.sequence.size(0) == x.size(0));
  const Tensor all =
      torch::cat({before.reshape({-1, w.size}), x}, 0).index_select(0, rows.places).view({-1, w.steps, w.size});
  memory_->hidden = rows.back > steps.index_select(0, rows.sequence);
  const Tensor next =
      finish(all.detach().index_select(0, rows.last), steps.index_select(0, rows.sequences) + rows.lengths);
  if (next.defined()) memory_->after = state.index_copy(0, rows.sequences, next);
  return all;
}

Tensor TorchNetworks::recall(const Tensor& q, const Tensor& k, const Tensor& v) {
  const std::int64_t rows = q.size(0), steps = k.size(1), width = q.size(1) / kRecallHeads;
  const auto heads = [&](const Tensor& x) { return x.reshape({rows, steps, kRecallHeads, width}).transpose(1, 2); };
  const Tensor from = q.reshape({rows, kRecallHeads, 1, width}) / std::sqrt(static_cast<double>(width));
  const Tensor scores = torch::matmul(from, heads(k).transpose(2, 3));  // [rows, heads, 1, steps]
  const Tensor hidden = memory_->hidden.reshape({rows, 1, 1, steps});
  const Tensor weights = torch::softmax(scores.masked_fill(hidden, -1e9), -1);
  return torch::matmul(weights, heads(v)).reshape({rows, -1});
}

Tensor TorchNetworks::gate(const std::string&, const Tensor& x, const Tensor& y) {
  const Tensor &weight_ih = next(), &weight_hh = next(), &bias_ih = next(), &bias_hh = next();
  return torch::gru_cell(y, x, weight_ih, weight_hh, bias_ih, bias_hh);
}

Tensor TorchNetworks::attention(const Tensor& q, const Tensor& k, const Tensor& v) {
  const auto heads = [](const Tensor& x) {
    return x.reshape({x.size(0), x.size(1), kVitHeads, x.size(2) / kVitHeads}).transpose(1, 2);
  };
  const Tensor all = at::scaled_dot_product_attention(heads(q), heads(k), heads(v));
  return all.transpose(1, 2).reshape(q.sizes());
}

}  // namespace gipo
