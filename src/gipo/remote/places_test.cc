#include "gipo/remote/places.h"

#include <gtest/gtest.h>

#include "gipo/core/error.h"
#include "gipo/io/files.h"
#include "gipo/io/temporary_folder.h"
#include "gipo/remote/names.h"

namespace gipo {
namespace {

TEST(Places, IncarnationsGrowAcrossRestarts) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/actors.json";
  std::string run;
  {
    Places places(path, 2);
    run = places.run();
    EXPECT_EQ(places.take(0, "a", 1), 1u);
    EXPECT_EQ(places.take(0, "a", 1), 2u);
    EXPECT_EQ(places.take(1, "b", 7), 7u);
  }
  Places again(path, 2);
  EXPECT_EQ(again.run(), run);
  EXPECT_EQ(again.greatest(), 7u);
  EXPECT_EQ(again.take(0, "c", 1), 3u);
  EXPECT_EQ(again[0].name, "c");
}

TEST(Places, ANameGetsItsOwnPlaceBackThenAnUntouchedOneThenAny) {
  const TemporaryFolder folder;
  Places places(folder.path() + "/actors.json", 3);
  places.take(1, "a", 1);
  EXPECT_EQ(places.choose("a", {false, false, false}), 1u);
  EXPECT_EQ(places.choose("b", {false, false, false}), 0u);
  EXPECT_EQ(places.choose("b", {true, false, true}), 1u);
  EXPECT_EQ(places.choose("b", {true, true, true}), std::nullopt);
}

TEST(Places, AFileThatIsDamagedOrOfAnotherRunIsRefused) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/actors.json";
  { Places places(path, 2); }
  EXPECT_THROW(Places(path, 3), Error);
  for (const char* text : {"", "{", "[]", "{\"run\": 3}", "{\"run\":\"x\",\"places\":[{\"name\":\"a\"},{}]}"}) {
    write_file_atomic(path, text);
    EXPECT_THROW(Places(path, 2), Error) << text;
  }
}

TEST(RemoteNames, AddressesAreHostAndPort) {
  EXPECT_EQ(parse_host_port("127.0.0.1:7400", "x").text(), "127.0.0.1:7400");
  EXPECT_EQ(parse_host_port("[::1]:7400", "x").host, "::1");
  EXPECT_EQ(parse_host_port("[::1]:7400", "x").text(), "[::1]:7400");
  EXPECT_TRUE(parse_host_port("localhost:0", "x").loopback());
  EXPECT_FALSE(parse_host_port("0.0.0.0:1", "x").loopback());
  for (const char* text : {"", ":", "host", "host:", ":1", "host:x", "host:65536", "host:-1", "a b:1", "::1:7400",
                           "unix:///tmp/x:1", "host:1 "}) {
    EXPECT_THROW(parse_host_port(text, "x"), Error) << text;
  }
}

TEST(RemoteNames, NamesCannotLeaveTheirPlaceInFilesAndLogs) {
  for (const char* name : {"a", "robot-3", "host.lab_1"}) EXPECT_EQ(actor_name_fault(name), "") << name;
  for (const char* name : {"", ".", "../x", "a/b", "a b", "-x", "a\nb", "\xc3\xa9"}) {
    EXPECT_NE(actor_name_fault(name), "") << name;
  }
  EXPECT_NE(actor_name_fault(std::string(65, 'a')), "");
}

}  // namespace
}  // namespace gipo
