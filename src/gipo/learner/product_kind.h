#pragma once

namespace gipo {

// The matrix products on a card. On the tensor cores: bf16x3, each factor in two parts of eight bits, where a network is
// not small; tf32x3, in two parts of ten bits; tf32, the first of these alone. float: without them. Sums are floats.
enum class ProductKind { kBf16x3, kTf32x3, kTf32, kFloat };

}  // namespace gipo
