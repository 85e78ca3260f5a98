#include "gipo/train/observer.h"

#include <cstring>

#include "gipo/data/transition.h"
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
    : fields_(fields), mask_(mask_field(fields)), now_(columns_of(fields), {envs, envs, envs}), row_(fields.size()) {
  for (std::size_t f = 0; f < fields.size(); ++f) columns_.push_back(now_.row(f, 0));
}

void Observer::observe(const Env& env, std::size_t i) {
  for (std::size_t f = 0; f < row_.size(); ++f) row_[f] = now_.row(f, i);
  env.observe(ObservationRow(row_));
}

bool Observer::finite(std::size_t i) const {
  for (std::size_t f = 0; f < fields_.size(); ++f) {
    if (!gipo::finite(fields_[f].dtype, field(f, i))) return false;
  }
  return true;
}

const std::uint8_t* Observer::mask(std::size_t i) const {
  return mask_ < fields_.size() ? reinterpret_cast<const std::uint8_t*>(now_.row(mask_, i)) : nullptr;
}

void Observer::move(std::size_t from, std::size_t to) {
  if (from == to) return;
  for (std::size_t f = 0; f < fields_.size(); ++f) std::memcpy(now_.row(f, to), now_.row(f, from), now_.row_bytes(f));
}

}  // namespace gipo
