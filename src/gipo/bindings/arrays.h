#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <memory>
#include <span>
#include <vector>

namespace gipo::bindings {

namespace nb = nanobind;

// An array of NumPy's, read where it lies. Python has made it contiguous and of this type where it was not.
template <class T>
using Array = nb::ndarray<const T, nb::numpy, nb::c_contig, nb::device::cpu>;
template <class T>
using OwnedArray = nb::ndarray<nb::numpy, T>;

using ArrayShape = std::vector<std::size_t>;

template <class T>
std::span<const T> view(const Array<T>& array) {
  return {array.data(), array.size()};
}

template <class T>
ArrayShape shape_of(const Array<T>& array) {
  ArrayShape shape;
  for (std::size_t d = 0; d < array.ndim(); ++d) shape.push_back(array.shape(d));
  return shape;
}

// Hands values over to NumPy, without a copy.
template <class T>
OwnedArray<T> to_numpy(std::vector<T> values, const ArrayShape& shape) {
  auto kept = std::make_unique<std::vector<T>>(std::move(values));
  T* data = kept->data();
  const nb::capsule owner(kept.get(), [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  static_cast<void>(kept.release());  // it is the owner's now
  return OwnedArray<T>(data, shape.size(), shape.data(), owner);
}
template <class T>
OwnedArray<T> to_numpy(std::vector<T> values) {
  const ArrayShape shape = {values.size()};
  return to_numpy(std::move(values), shape);
}

}  // namespace gipo::bindings
