#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace gipo {

enum class DType : std::uint8_t { kUint8, kInt32, kInt64, kFloat32, kFloat64 };
std::size_t size_of(DType type);          // bytes of one value
const char* name_of(DType type);          // "uint8"
DType dtype_of(const std::string& name);  // throws Error for another name

// Who sees a field of an observation. kCritic: the critic alone, beside what the policy sees. kMask: nobody; it says
// which actions are valid, one value for each choice of each part of the action, not zero where it is.
enum class Role : std::uint8_t { kPolicy, kCritic, kMask };
const char* name_of(Role role);  // "policy"

// One named array of an observation.
struct Field {
  std::string name;
  DType dtype = DType::kFloat32;
  std::vector<std::int64_t> shape = {};  // of one observation
  Role role = Role::kPolicy;
  std::vector<std::int64_t> choices = {};  // where its values are choices, counted from 0: how many, for each of them
  bool bits = false;                       // its values are zeros and ones
  bool raw = false;                        // networks read it as it is: no floats are made of it
  // Above 1: the first dimension is that of moments, and the field holds as many frames, the last of them that of now.
  // They are those of the observations before, or as often the first one of the episode, and are kept once.
  std::int64_t stack = 1;

  std::size_t values() const;  // in one observation
  std::size_t bytes() const { return values() * size_of(dtype); }
  // Bytes of two dimensions or more, 0 to 255.
  bool image() const { return dtype == DType::kUint8 && shape.size() >= 2 && !bits; }
  // What is made of it for networks: each choice as a row of zeros with a one, anything else as a number each; of a mask
  // and of what they read as it is none.
  std::size_t floats() const;
  Field frame() const;  // one of its frames, or itself
  bool operator==(const Field&) const = default;
};

// What an observation is made of. A task of plain vectors has one field, "observation", of float32.
using Fields = std::vector<Field>;
Fields plain_fields(std::size_t observation_size);
bool is_plain(const Fields& fields);
std::size_t floats_of(const Fields& fields);  // of all of them: the observation_size of a task

// One observation that is being written: where each field of it lies, in the order of the spec.
using ObservationRow = std::span<std::byte* const>;

// One array of a transition; what walks all of them (insert, sample, save, load, wire) walks a list of these.
struct Column {
  // How many rows a segment of T steps has: T; T + 1, with the true final observation, and those of its context; or one
  // (its start).
  enum class Rows : std::uint8_t { kSteps, kStepsAndFinal, kStart };
  std::string name;
  DType dtype = DType::kFloat32;
  std::size_t width = 0;  // values in a row
  Rows rows = Rows::kSteps;

  std::size_t row_bytes() const { return width * size_of(dtype); }
  bool operator==(const Column&) const = default;
};
Column column_of(const Field& field, Column::Rows rows);

}  // namespace gipo
