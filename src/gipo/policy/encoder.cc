#include "gipo/policy/encoder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <string_view>

#include "gipo/core/error.h"
#include "gipo/policy/network_layout.h"

namespace gipo {
namespace {

constexpr std::int64_t kFewChoices = 32;  // as many are one-hot

bool picture(const Field& all) {
  const Field field = all.frame();
  const bool bytes = field.dtype == DType::kUint8, number = field.dtype == DType::kFloat32 && field.shape.size() == 3;
  return field.role != Role::kMask && field.choices.empty() && (bytes || number) &&
         (field.shape.size() == 2 || field.shape.size() == 3);
}

bool fits(Encoder encoder, const Field& field) {
  if (encoder == Encoder::kFloats || field.role == Role::kMask) return encoder == Encoder::kFloats;
  if (encoder == Encoder::kVla) return is_tokens(field) || (picture(field) && field.image() && field.stack == 1);
  return encoder == Encoder::kEmbedding ? !field.choices.empty() : picture(field);
}

// The largest network that an image of its size has room for.
Encoder suggested(const Field& field) {
  if (!field.choices.empty() && *std::ranges::max_element(field.choices) > kFewChoices) return Encoder::kEmbedding;
  if (!picture(field)) return Encoder::kFloats;
  const ImageShape shape = image_shape(field);
  const std::int64_t side = std::min(shape.height, shape.width);
  return side >= 36 ? Encoder::kNature : side >= 3 ? Encoder::kSmall : Encoder::kFloats;
}

std::string accepted() {
  std::vector<const char*> words;
  words.reserve(kWords<Encoder>.size());
  for (const Word<Encoder>& word : kWords<Encoder>) words.push_back(word.text);
  return fmt::format("auto, {}", fmt::join(words, ", "));
}

std::optional<Encoder> read_encoder(std::string_view text) {
  if (text == "auto") return std::nullopt;
  if (const auto encoder = read_word<Encoder>(text)) return encoder;
  throw Error(fmt::format("policy.encoder: {} is no encoder; known: {}", text, accepted()));
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

// FIELD=WORD, ... by field.
std::map<std::string, Encoder, std::less<>> read_list(std::string_view text, const Fields& fields) {
  std::map<std::string, Encoder, std::less<>> chosen;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    const std::string_view entry = trimmed(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
    const std::size_t equals = entry.find('=');
    const std::string name(trimmed(entry.substr(0, equals)));
    if (equals == std::string_view::npos || std::ranges::find(fields, name, &Field::name) == fields.end()) {
      std::vector<std::string> names;
      for (const Field& f : fields) names.push_back(f.name);
      throw Error(
          fmt::format("policy.encoder: {}: wanted FIELD=WORD with a field of {}", entry, fmt::join(names, ", ")));
    }
    if (const auto encoder = read_encoder(trimmed(entry.substr(equals + 1)))) chosen[name] = *encoder;
  }
  return chosen;
}

void check_fit(Encoder encoder, const Field& field) {
  if (!fits(encoder, field)) {
    const char* wanted = encoder == Encoder::kEmbedding ? "choices"
                         : encoder == Encoder::kVla     ? "an image of bytes, or tokens: int32 of one dimension"
                                                        : "an image: bytes or float32 of two or three dimensions";
    throw Error(fmt::format("policy.encoder: {} does not fit the field {}, {} of shape ({}): wanted {}",
                            word_of(encoder), field.name, name_of(field.dtype), fmt::join(field.shape, ", "), wanted));
  }
  if (encoder != Encoder::kFloats && encoder != Encoder::kVla)
    encoder_layout(encoder, field);  // throws where a layer has no room
}

}  // namespace

std::vector<Encoder> choose_encoders(const std::string& option, const Fields& fields, bool torch) {
  std::vector<Encoder> encoders(fields.size(), Encoder::kFloats);
  const bool list = option.find('=') != std::string::npos;
  const auto chosen = list ? read_list(option, fields) : decltype(read_list(option, fields)){};
  const std::optional<Encoder> for_all = list ? std::nullopt : read_encoder(option);
  bool fitted = !for_all || *for_all == Encoder::kFloats;
  for (std::size_t f = 0; f < fields.size(); ++f) {
    const Field& field = fields[f];
    if (const auto it = chosen.find(field.name); it != chosen.end()) {
      encoders[f] = it->second;
    } else if (for_all) {
      if (!fits(*for_all, field)) continue;
      encoders[f] = *for_all;
      fitted = true;
    } else if (torch) {
      encoders[f] = suggested(field);
    }
    check_fit(encoders[f], field);
    if (encoders[f] == Encoder::kFloats || torch) continue;
    throw Error(fmt::format("policy.encoder: {} needs learner.backend = torch", word_of(encoders[f])));
  }
  if (!fitted) throw Error(fmt::format("policy.encoder: {} fits none of the task's fields", option));
  return encoders;
}

bool is_tokens(const Field& field) {
  return field.role == Role::kPolicy && field.dtype == DType::kInt32 && field.shape.size() == 1 &&
         field.choices.empty();
}

ImageShape image_shape(const Field& field) {
  const std::vector<std::int64_t> s = field.frame().shape;
  if (s.size() == 2) return {field.stack, s[0], s[1], false};
  GIPO_CHECK(s.size() == 3);
  if (s[0] < s[2]) return {field.stack * s[0], s[1], s[2], false};
  return {field.stack * s[2], s[0], s[1], true};
}

}  // namespace gipo
