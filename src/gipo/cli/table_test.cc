#include "gipo/cli/table.h"

#include <gtest/gtest.h>

namespace gipo::cli {
namespace {

TEST(Table, ColumnsStandUnderEachOther) {
  EXPECT_EQ(as_text({{"name", "x"}, {"a", "1.25"}, {"±", "2"}}), "name     x\na     1.25\n±        2\n");
}

TEST(Table, CsvQuotesWhatWouldBreakIt) {
  EXPECT_EQ(as_csv({{"a", "b"}, {"x, y", "say \"so\""}}), "a,b\n\"x, y\",\"say \"\"so\"\"\"\n");
}

}  // namespace
}  // namespace gipo::cli
