#pragma once

namespace gipo {

// The matrix products on a card. tf32x3: on the tensor cores, each factor in two parts of ten bits; tf32: the first part
// alone; float: without them. Sums are floats.
enum class ProductKind { kTf32x3, kTf32, kFloat };

}  // namespace gipo
