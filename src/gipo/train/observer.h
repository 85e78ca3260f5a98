#pragma once

#include <span>
#include <vector>

#include "gipo/data/encode.h"
#include "gipo/data/table.h"

namespace gipo {

class Env;

// The observations of environments that step together, by fields. Owned by one thread.
class Observer {
 public:
  Observer(const Fields& fields, std::size_t envs);

  void observe(const Env& env, std::size_t i);
  // Of all environments, as a policy is given them.
  FieldColumns columns() const { return columns_; }
  // Whether every number of environment i is one, as a float.
  bool finite(std::size_t i) const;
  // Which actions of environment i are valid, [choices]; null where the task does not say.
  const std::uint8_t* mask(std::size_t i) const;
  // The bytes of field f of environment i.
  std::span<const std::byte> field(std::size_t f, std::size_t i) const { return {now_.row(f, i), now_.row_bytes(f)}; }
  // Its last `size` bytes: one frame.
  std::span<const std::byte> newest(std::size_t f, std::size_t i, std::size_t size) const {
    return field(f, i).last(size);
  }
  std::size_t fields() const { return fields_.size(); }
  std::span<float> plain() { return now_.values<float>(0); }  // of plain vectors alone
  std::span<const float> plain() const { return now_.values<float>(0); }
  // What was observed of environment `from` is that of `to` from now on.
  void move(std::size_t from, std::size_t to);

 private:
  Fields fields_;
  std::size_t mask_;
  Table now_;                              // a row for each environment
  std::vector<const std::byte*> columns_;  // [fields] their first rows
  std::vector<std::byte*> row_;            // [fields]
};

}  // namespace gipo
