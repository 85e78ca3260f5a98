#include "gipo/train/observer.h"

#include <algorithm>

#include "gipo/env/env.h"

namespace gipo {
namespace {

Columns columns_of(const Fields& fields) {
  Columns all;
  for (const Field& f : fields) all.push_back(column_of(f, Column::Rows::kSteps));
  return all;
}

}  // namespace

Observer::Observer(const Fields& fields, std::size_t envs)
    : fields_(fields),
      plain_(is_plain(fields)),
      width_(policy_width(fields) + critic_width(fields)),
      mask_(mask_field(fields)),
      now_(columns_of(fields), {envs, envs, envs}),
      encoded_(plain_ ? 0 : envs * width_),
      row_(fields.size()) {}

void Observer::observe(const Env& env, std::size_t i) {
  for (std::size_t f = 0; f < row_.size(); ++f) row_[f] = now_.row(f, i);
  env.observe(ObservationRow(row_));
  if (!plain_) encode(fields_, FieldColumns(row_.data(), row_.size()), 1, encoded_.data() + i * width_);
}

const std::uint8_t* Observer::masks() const {
  return mask_ < fields_.size() ? now_.values<std::uint8_t>(mask_).data() : nullptr;
}

}  // namespace gipo
