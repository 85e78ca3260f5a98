#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "gipo/core/aligned_vector.h"
#include "gipo/core/error.h"
#include "gipo/data/spec.h"

namespace gipo {

using Columns = std::vector<Column>;

// How many rows a column has, by its kind.
struct RowCounts {
  std::size_t steps = 0, with_final = 0, starts = 0;

  std::size_t of(Column::Rows rows) const {
    return rows == Column::Rows::kSteps ? steps : rows == Column::Rows::kStepsAndFinal ? with_final : starts;
  }
};
// context: observations of before its first step, which lie behind the final one.
inline RowCounts rows_of_segment(std::size_t steps, std::size_t context) { return {steps, steps + 1 + context, 1}; }

// Arrays of rows, one for each column, in one piece of memory; each array begins 16 bytes into a cache line. All zero at
// first.
class Table {
 public:
  Table(const Columns& columns, const RowCounts& rows);
  static double bytes_needed(const Columns& columns, const RowCounts& rows);

  std::byte* row(std::size_t column, std::size_t r) { return bytes_.data() + place(column, r); }
  const std::byte* row(std::size_t column, std::size_t r) const { return bytes_.data() + place(column, r); }
  std::size_t row_bytes(std::size_t column) const { return arrays_[column].row_bytes; }

  // All values of a column, which must be of that type.
  template <class T>
  std::span<T> values(std::size_t column) {
    const std::size_t n = count<T>(column);  // checks the column
    return {reinterpret_cast<T*>(row(column, 0)), n};
  }
  template <class T>
  std::span<const T> values(std::size_t column) const {
    const std::size_t n = count<T>(column);
    return {reinterpret_cast<const T*>(row(column, 0)), n};
  }

 private:
  struct Array {
    std::size_t offset, row_bytes, values;
    DType dtype;
  };

  template <class T>
  static constexpr DType type() {
    if constexpr (std::is_same_v<T, std::uint8_t>) return DType::kUint8;
    if constexpr (std::is_same_v<T, std::int32_t>) return DType::kInt32;
    if constexpr (std::is_same_v<T, std::int64_t>) return DType::kInt64;
    if constexpr (std::is_same_v<T, float>) return DType::kFloat32;
    if constexpr (std::is_same_v<T, double>) return DType::kFloat64;
  }
  template <class T>
  std::size_t count(std::size_t column) const {
    GIPO_CHECK(column < arrays_.size() && arrays_[column].dtype == type<T>());
    return arrays_[column].values;
  }
  std::size_t place(std::size_t column, std::size_t r) const {
    return arrays_[column].offset + r * arrays_[column].row_bytes;
  }

  std::vector<Array> arrays_;
  AlignedVector<std::byte> bytes_;
};

}  // namespace gipo
