#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace gipo {

class ByteReader;
class ByteWriter;

// The columns of some rows, summed up around the first of them.
class ColumnSums {
 public:
  explicit ColumnSums(std::size_t dims) : from_(dims), sum_(dims), square_(dims) {}
  ColumnSums(std::size_t dims, std::span<const float> rows) : ColumnSums(dims) { set(rows); }
  void set(std::span<const float> rows) { set(rows, 0, sum_.size()); }  // [n, dims]
  // Columns [first, first + width) alone: [n, width]. The same as all at once, where each is set once.
  void set(std::span<const float> rows, std::size_t first, std::size_t width);
  double count() const { return count_; }  // rows

 private:
  friend class RunningMoments;
  double count_ = 0;
  std::vector<double> from_, sum_, square_;  // [dims]
};

// Running count, mean and summed square deviation of every column, in double.
class RunningMoments {
 public:
  explicit RunningMoments(std::size_t dims = 0) : mean_(dims), square_(dims) {}

  // As if so many rows had been seen.
  RunningMoments(double count, std::vector<double> mean, const std::vector<double>& variance);

  void add(const ColumnSums& rows);
  double count() const { return count_; }
  double mean(std::size_t d) const { return mean_[d]; }
  double variance(std::size_t d) const { return count_ > 0 ? square_[d] / count_ : 0.0; }
  std::size_t dims() const { return mean_.size(); }

  void save(ByteWriter& out) const;
  void load(ByteReader& in);

 private:
  double count_ = 0;
  std::vector<double> mean_, square_;
};

}  // namespace gipo
