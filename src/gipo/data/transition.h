#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "gipo/data/spec.h"
#include "gipo/data/table.h"

namespace gipo {

// What a transition is made of.
struct TransitionSpec {
  Fields observation;
  std::size_t action_dims = 0;
  bool stored = true;                      // advantages and targets made at collection are kept
  std::size_t state_size = 0;              // numbers of a recurrent policy's state, kept at the start of each segment
  std::vector<std::int64_t> choices = {};  // per action dimension, where actions are choices; 0: a number
  // Of a recurrent policy: observations of before a segment that are kept with it, the state being that of before these;
  // and the steps of the longest segment.
  std::size_t burn_in = 0, longest = 0;

  bool stacked() const;         // whether a field holds frames
  std::size_t context() const;  // the most observations of before a segment: for the state and for frames

  bool operator==(const TransitionSpec&) const = default;
};
// Of a task whose observation is one vector of floats.
TransitionSpec plain_transition(std::size_t observation_size, std::size_t action_dims, bool stored = true);

// The one list of the arrays of a transition: the fields of an observation in their order, then action, log_prob, reward,
// advantage and target where they are stored, version, and the state where there is one. What inserts, samples, saves,
// loads, sends, checks or counts transitions walks this list.
// Segments and the replay keep one frame of each observation, batches have all that networks see.
enum class Frames { kOne, kAll };
Columns columns(const TransitionSpec& spec, Frames frames = Frames::kOne);

// Of a segment with a context, the row of what was observed at a moment: 0 at its first step, negative before. Before the
// episode there was nothing: its first observation stands for that.
inline std::size_t row_of(std::ptrdiff_t moment, std::size_t length, std::size_t context) {
  if (moment >= 0) return static_cast<std::size_t>(moment);
  const std::ptrdiff_t at = static_cast<std::ptrdiff_t>(context) + moment;
  if (context == 0) return 0;
  return length + 1 + static_cast<std::size_t>(at < 0 ? 0 : at);
}

// That list, and where the named columns stand in it.
struct TransitionLayout {
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

  explicit TransitionLayout(const TransitionSpec& spec, Frames frames = Frames::kOne);

  TransitionSpec spec;
  Columns columns;
  std::vector<std::size_t> row_bytes;  // of each column
  std::size_t action, log_prob, reward, advantage, target, version, state;
  // Checksum of names, types, widths and kinds of what segments keep: two programs with the same one mean the same by a row.
  std::uint32_t fingerprint;

  std::size_t step_bytes() const;   // of a step: one row of each column but those of the start
  std::size_t start_bytes() const;  // of the start of a segment
  // Throws Error, naming the column, where `rows` of it hold what no step can hold: a number that is not finite, no such
  // choice, no such version. `whose` begins the message.
  void refuse_impossible(std::size_t column, std::span<const std::byte> rows, const char* whose) const;
};

// Whether values of that type are finite numbers, as floats; whole ones always are.
bool finite(DType dtype, std::span<const std::byte> rows);
// Whether every action [rows, dims] can be taken: a finite number, and one of the choices where there are any.
bool possible_choices(std::span<const std::int64_t> choices, std::span<const float> actions);

// Rows of transitions by name. Each span is a whole array, as long as it was made.
class Transitions {
 public:
  Transitions(const TransitionSpec& spec, const RowCounts& rows, Frames frames = Frames::kOne)
      : layout_(spec, frames), table_(layout_.columns, rows) {}

  const TransitionLayout& layout() const { return layout_; }
  Table& table() { return table_; }
  const Table& table() const { return table_; }
  std::size_t action_dims() const { return layout_.spec.action_dims; }
  // Values of an observation of a task of plain vectors; 0 for any other.
  std::size_t observation_size() const { return is_plain(layout_.spec.observation) ? layout_.columns[0].width : 0; }

  // One field; of a task of plain vectors that is the observation.
  template <class T = float>
  std::span<T> observation(std::size_t field = 0) {
    return table_.values<T>(field);
  }
  template <class T = float>
  std::span<const T> observation(std::size_t field = 0) const {
    return table_.values<T>(field);
  }
  // Where each field of observation r lies; out: one place per field.
  void locate_observation(std::size_t r, std::span<std::byte*> out) {
    for (std::size_t f = 0; f < layout_.spec.observation.size(); ++f) out[f] = table_.row(f, r);
  }

  void locate_observation(std::size_t r, std::span<const std::byte*> out) const {
    for (std::size_t f = 0; f < layout_.spec.observation.size(); ++f) out[f] = table_.row(f, r);
  }

  std::span<float> action() { return table_.values<float>(layout_.action); }
  std::span<float> log_prob() { return table_.values<float>(layout_.log_prob); }
  std::span<float> reward() { return table_.values<float>(layout_.reward); }
  std::span<float> advantage() { return table_.values<float>(layout_.advantage); }  // only where stored, as target
  std::span<float> target() { return table_.values<float>(layout_.target); }
  std::span<std::int64_t> version() { return table_.values<std::int64_t>(layout_.version); }
  std::span<float> state() { return table_.values<float>(layout_.state); }  // only where it has a size
  std::span<const float> action() const { return table_.values<float>(layout_.action); }
  std::span<const float> log_prob() const { return table_.values<float>(layout_.log_prob); }
  std::span<const float> reward() const { return table_.values<float>(layout_.reward); }
  std::span<const float> advantage() const { return table_.values<float>(layout_.advantage); }
  std::span<const float> target() const { return table_.values<float>(layout_.target); }
  std::span<const std::int64_t> version() const { return table_.values<std::int64_t>(layout_.version); }
  std::span<const float> state() const { return table_.values<float>(layout_.state); }

 private:
  TransitionLayout layout_;
  Table table_;
};

}  // namespace gipo
