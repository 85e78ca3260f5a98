#include "gipo/config/toml_shape.h"

#include <fmt/format.h>

#include <algorithm>

#include "gipo/core/error.h"

namespace gipo {
namespace {

// The parser goes down one call for each bracket and for each dot of a key, and so does the end of its tables.
constexpr std::size_t kMostDepth = 32, kMostParts = 32;
// It seeks every table that a dot made in the list of all of them: the time grows with the square of their number.
constexpr std::size_t kMostDottedKeys = 20'000;

// One pass over the text, which skips what stands in quotes or in a comment.
class Shape {
 public:
  Shape(std::string_view text, const std::string& name) : text_(text), name_(name) {}

  void check() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (c == '"' || c == '\'') {
        skip_quoted(c);
        blank_line_ = false;
      } else {
        take(c);
        ++at_;
      }
    }
    if (heading_ && dots_ > 0) count_dotted();
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const { throw Error(fmt::format("{}:{}: {}", name_, line_, why)); }

  void count_dotted() {
    if (++dotted_ <= kMostDottedKeys) return;
    refuse(
        fmt::format("more than {} keys with a dot are not accepted: a table in braces, group = {{a = 1, b = 2}}, "
                    "has none",
                    kMostDottedKeys));
  }

  void take(char c) {
    switch (c) {
      case '\n':
        if (heading_ && dots_ > 0) count_dotted();
        ++line_, dots_ = 0, blank_line_ = true, heading_ = false;
        return;
      case ' ':
      case '\t':
      case '\r':
        return;
      case '.':
        if (++dots_ >= kMostParts) refuse(fmt::format("keys of more than {} parts are not accepted", kMostParts));
        break;
      case '=':
        if (dots_ > 0) count_dotted();
        dots_ = 0;
        break;
      case '[':
      case '{':
        if (blank_line_ && depth_ == 0) heading_ = true;
        if (++depth_ > kMostDepth) refuse(fmt::format("lists and tables more than {} deep", kMostDepth));
        dots_ = 0;
        break;
      case ']':
      case '}':
        if (depth_ > 0) --depth_;
        if (!heading_) dots_ = 0;
        break;
      case ',':
        dots_ = 0;
        break;
      default:
        break;
    }
    blank_line_ = false;
  }

  // To behind the closing quote; a text of one line that has none ends with the line.
  void skip_quoted(char quote) {
    const bool three = text_.substr(at_, 3) == std::string(3, quote);
    for (at_ += three ? 3 : 1; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c == '\n' && !three) return;
      if (c == '\n') ++line_;
      if (c == '\\' && quote == '"') {
        ++at_;
        if (at_ < text_.size() && text_[at_] == '\n') ++line_;
      } else if (c == quote && (!three || text_.substr(at_, 3) == std::string(3, quote))) {
        at_ += three ? 3 : 1;
        // Up to two quotes more belong to a text in three: """a""""" ends with two.
        for (int i = 0; three && i < 2 && at_ < text_.size() && text_[at_] == quote; ++i) ++at_;
        return;
      }
    }
  }

  const std::string_view text_;
  const std::string& name_;
  std::size_t at_ = 0, line_ = 1, depth_ = 0, dots_ = 0, dotted_ = 0;
  bool blank_line_ = true, heading_ = false;
};

}  // namespace

void check_toml_shape(std::string_view text, const std::string& name) {
  if (text.size() > kMostTomlBytes) {
    throw Error(fmt::format("{}: {} bytes are no config: at most {} are read", name, text.size(), kMostTomlBytes));
  }
  Shape(text, name).check();
}

}  // namespace gipo
