#pragma once

#include <span>
#include <vector>

#include "gipo/data/encode.h"
#include "gipo/data/table.h"

namespace gipo {

class Env;

// The observations of environments that step together: their fields, and the floats that networks read of them. Owned
// by one thread.
class Observer {
 public:
  Observer(const Fields& fields, std::size_t envs);

  void observe(const Env& env, std::size_t i);
  // Of the first environments, [envs, observation_size]; the same memory where the fields are one plain vector.
  const float* floats() const { return plain_ ? now_.values<float>(0).data() : encoded_.data(); }
  std::span<const float> floats(std::size_t i) const { return {floats() + i * width_, width_}; }
  // Which actions are valid, [envs, choices]; null where the task does not say.
  const std::uint8_t* masks() const;
  const std::uint8_t* mask(std::size_t i) const { return masks() ? masks() + i * now_.row_bytes(mask_) : nullptr; }
  // The bytes of field f of environment i.
  std::span<const std::byte> field(std::size_t f, std::size_t i) const { return {now_.row(f, i), now_.row_bytes(f)}; }
  std::size_t fields() const { return fields_.size(); }
  std::span<float> plain() { return now_.values<float>(0); }  // of plain vectors alone
  std::span<const float> plain() const { return now_.values<float>(0); }

 private:
  Fields fields_;
  bool plain_;
  std::size_t width_, mask_;
  Table now_;                    // a row for each environment
  std::vector<float> encoded_;   // [envs, observation_size] where the fields are not plain
  std::vector<std::byte*> row_;  // [fields]
};

}  // namespace gipo
