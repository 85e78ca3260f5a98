#include "gipo/cli/table.h"

#include <algorithm>

namespace gipo::cli {
namespace {

// Characters, not bytes: names may hold more than ASCII.
std::size_t width(const std::string& text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

// Whether a column holds numbers, by the cell in its last row.
bool numeric(const Table& table, std::size_t column) {
  if (column == 0 || table.back().size() <= column || table.back()[column].empty()) return false;
  const char first = table.back()[column].front();
  return (first >= '0' && first <= '9') || first == '-';
}

}  // namespace

std::string as_text(const Table& table) {
  std::vector<std::size_t> widths;
  for (const auto& row : table) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width(row[i]));
  }
  std::string text;
  for (const auto& row : table) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string space(widths[i] - width(row[i]), ' ');
      line += (i == 0 ? "" : "  ") + (numeric(table, i) ? space + row[i] : row[i] + space);
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

std::string as_csv(const Table& table) {
  std::string text;
  for (const auto& row : table) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (i > 0) text += ',';
      if (row[i].find_first_of(",\"\n") == std::string::npos) {
        text += row[i];
        continue;
      }
      text += '"';
      for (const char c : row[i]) text += c == '"' ? std::string("\"\"") : std::string(1, c);
      text += '"';
    }
    text += '\n';
  }
  return text;
}

}  // namespace gipo::cli
