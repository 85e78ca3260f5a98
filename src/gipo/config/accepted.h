#pragma once

#include <string>
#include <vector>

namespace gipo {

// What an option accepts: a range of numbers, a list of words, or names that a registry knows (checked there).
struct Accepted {
  double low = 0, high = 0;
  bool ranged = false, open_low = false;
  std::vector<std::string> words;
  std::string listed;
};

// "0.001 to 1000", "above 0", "gaussian, laplacian or cauchy"; empty where any value is accepted.
std::string in_words(const Accepted& accepted);

// The words of a list options.def.
namespace accepted {

Accepted any();  // every value of the type; of an enum, each of its words
Accepted range(double low, double high);
Accepted above(double low);
Accepted one_of(std::vector<std::string> words);
Accepted listed(std::string what);  // by `gipo list WHAT`

}  // namespace accepted

// Throw Error naming key, value, what is accepted and where.
[[noreturn]] void refuse_value(const std::string& where, const std::string& key, const std::string& value,
                               const std::string& wanted);
void check_number(const Accepted& accepted, double v, const std::string& where, const std::string& key,
                  const std::string& shown);
void check_word(const Accepted& accepted, const std::string& v, const std::string& where, const std::string& key);

}  // namespace gipo
