#pragma once

#include <string>
#include <vector>

#include "gipo/config/words.h"
#include "gipo/data/spec.h"

namespace gipo {

// What reads a field of an observation, before the hidden layers of a network. All but the first read it as it is, and
// run in libtorch. The last one reads all fields, and is the whole network (vla_spec.h).
enum class Encoder { kFloats, kSmall, kNature, kImpala, kVit, kEmbedding, kVla };
template <>
inline constexpr auto kWords<Encoder> = std::to_array<Word<Encoder>>({{Encoder::kFloats, "floats"},
                                                                      {Encoder::kSmall, "small"},
                                                                      {Encoder::kNature, "nature"},
                                                                      {Encoder::kImpala, "impala"},
                                                                      {Encoder::kVit, "vit"},
                                                                      {Encoder::kEmbedding, "embedding"},
                                                                      {Encoder::kVla, "openvla_oft"}});

// One for each field. `option` is "auto", a word for all fields that it fits, or FIELD=WORD, separated by commas, the
// others being left to auto. Without libtorch auto makes floats of all. Throws Error, naming field and word, where one
// does not fit.
std::vector<Encoder> choose_encoders(const std::string& option, const Fields& fields, bool torch);

// Whether a field holds the tokens of a text, with negative numbers behind them.
bool is_tokens(const Field& field);

// An image as convolutions take it.
struct ImageShape {
  std::int64_t channels = 1, height = 1, width = 1;  // the channels of all frames
  bool channels_last = false;
};
// Of a field of two or three dimensions, or of frames of as many: the smallest of the first and the last is that of the
// channels.
ImageShape image_shape(const Field& field);

}  // namespace gipo
