#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace gipo {

// The two halves of a policy's parameters, each one flat buffer that is optimised on its own.
enum class Part { kPolicy, kCritic };

// Where one tensor lies in a flat buffer of parameters; matrices are [rows, columns], row-major.
struct TensorSlice {
  std::string name;
  std::size_t offset = 0;
  std::vector<std::int64_t> shape;

  std::size_t values() const {
    std::size_t n = 1;
    for (const std::int64_t d : shape) n *= static_cast<std::size_t>(d);
    return n;
  }
};

inline std::size_t values_of(const std::vector<TensorSlice>& tensors) {
  std::size_t n = 0;
  for (const TensorSlice& s : tensors) n += s.values();
  return n;
}

}  // namespace gipo
