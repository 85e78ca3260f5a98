#include "gipo/io/json_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <utility>
#include <vector>

#include "gipo/core/error.h"

namespace gipo {
namespace {

constexpr std::size_t kMostShown = 40;  // bytes of a text in a message

std::string shortened(const std::string& text) {
  return text.size() <= kMostShown ? text : text.substr(0, kMostShown) + "...";
}

// Takes the events of the library's parser and builds the value from them.
template <class Json>
class Builder final : public nlohmann::json_sax<Json> {
 public:
  Builder(std::string_view text, const std::string& where, const JsonLimits& limits)
      : text_(text), where_(where), limits_(limits) {}

  Json take() { return std::move(root_); }

  bool null() override { return put(nullptr), true; }
  bool boolean(bool v) override { return put(v), true; }
  bool number_integer(typename Json::number_integer_t v) override { return put(v), true; }
  bool number_unsigned(typename Json::number_unsigned_t v) override { return put(v), true; }
  bool number_float(typename Json::number_float_t v, const std::string&) override { return put(v), true; }
  bool string(std::string& v) override { return put(std::move(v)), true; }
  bool binary(typename Json::binary_t&) override { return false; }  // no such thing in a text
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_object() override { return open_.pop_back(), true; }
  bool end_array() override { return open_.pop_back(), true; }

  bool key(std::string& name) override {
    Level& top = open_.back();
    top.key.clear();  // the one before, which a message must not name
    if (!top.keys.insert(name).second) refuse(fmt::format("the key {} stands there twice", shortened(name)));
    top.key = std::move(name);
    return true;
  }

  bool parse_error(std::size_t at, const std::string& token, const nlohmann::detail::exception& e) override {
    if (dynamic_cast<const typename Json::out_of_range*>(&e)) {
      refuse(fmt::format("{} is not accepted: a finite number is wanted", shortened(token)));
    }
    const auto end = text_.begin() + static_cast<std::ptrdiff_t>(std::min(at, text_.size()));
    throw Error(fmt::format("{}:{}: not valid JSON", where_, 1 + std::count(text_.begin(), end, '\n')));
  }

 private:
  struct Level {
    Json* value;      // an open list or object; the last item of the one before
    std::string key;  // where the next value of an object goes
    std::unordered_set<std::string> keys;
  };

  [[noreturn]] void refuse(const std::string& why) const {
    std::string path;
    for (const Level& level : open_) path += level.key.empty() ? "" : shortened(level.key) + ": ";
    throw Error(fmt::format("{}: {}{}", where_, path, why));
  }

  Json& put(Json value) {
    if (open_.empty()) return root_ = std::move(value);
    Level& top = open_.back();
    if (top.value->is_array()) {
      top.value->push_back(std::move(value));
      return top.value->back();
    }
    // Not through operator[], which searches all of an ordered object.
    auto& object = top.value->template get_ref<typename Json::object_t&>();
    if constexpr (requires { object.emplace_back(top.key, std::move(value)); }) {
      object.emplace_back(top.key, std::move(value));
      return object.back().second;
    } else {
      return object.emplace(top.key, std::move(value)).first->second;
    }
  }

  bool open(Json empty) {
    if (open_.size() == limits_.depth) refuse(fmt::format("lists and objects more than {} deep", limits_.depth));
    Json& value = put(std::move(empty));
    open_.push_back({&value, "", {}});
    return true;
  }

  const std::string_view text_;
  const std::string& where_;
  const JsonLimits& limits_;
  Json root_;
  std::vector<Level> open_;
};

}  // namespace

template <class Json>
Json parse_json(std::string_view text, const std::string& where, const JsonLimits& limits) {
  if (text.size() > limits.bytes) {
    throw Error(fmt::format("{}: {} bytes of JSON: at most {} are read", where, text.size(), limits.bytes));
  }
  Builder<Json> builder(text, where, limits);
  if (!Json::sax_parse(text, &builder)) throw Error(fmt::format("{}: not valid JSON", where));
  return builder.take();
}

template nlohmann::json parse_json(std::string_view, const std::string&, const JsonLimits&);
template nlohmann::ordered_json parse_json(std::string_view, const std::string&, const JsonLimits&);

}  // namespace gipo
