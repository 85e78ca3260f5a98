#pragma once

#include <array>
#include <optional>
#include <string_view>

#include "gipo/core/error.h"

namespace gipo {

// An option that takes one of a few words is an enum. Its words stand beside it, in the order in which messages name
// them; parsing, printing and messages read this one array:
//
//   enum class Pacing { kPaced, kFree };
//   template <>
//   inline constexpr auto kWords<Pacing> =
//       std::to_array<Word<Pacing>>({{Pacing::kPaced, "paced"}, {Pacing::kFree, "free"}});
template <class E>
struct Word {
  E value;
  const char* text;
};

template <class E>
inline constexpr std::array<Word<E>, 0> kWords{};

template <class E>
const char* word_of(E value) {
  static_assert(!kWords<E>.empty(), "an enum without words");
  for (const Word<E>& word : kWords<E>) {
    if (word.value == value) return word.text;
  }
  invariant_failed("one of the values of its enum", __FILE__, __LINE__);
}

// Nothing where no word is that text.
template <class E>
std::optional<E> read_word(std::string_view text) {
  static_assert(!kWords<E>.empty(), "an enum without words");
  for (const Word<E>& word : kWords<E>) {
    if (word.text == text) return word.value;
  }
  return std::nullopt;
}

}  // namespace gipo
