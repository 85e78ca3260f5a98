#pragma once

#include <string>
#include <vector>

namespace gipo::cli {

// Cells as text; the first row is the head.
using Table = std::vector<std::vector<std::string>>;

// Columns side by side: numbers to the right, words to the left.
std::string as_text(const Table& table);
// Cells that hold a comma, a quote or a line end are quoted.
std::string as_csv(const Table& table);

}  // namespace gipo::cli
