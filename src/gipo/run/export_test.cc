#include "gipo/run/export.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "gipo/core/error.h"
#include "gipo/core/message_of.h"
#include "gipo/io/files.h"
#include "gipo/io/temporary_folder.h"

namespace gipo {
namespace {

class Export : public ::testing::Test {
 protected:
  // A run that has ended: its policy, and what makes it a run.
  void SetUp() override {
    std::filesystem::create_directory(run_);
    write_file_atomic(run_ + "/config.toml", "");
    const ModelSpec spec = make_model_spec({}, {"T", "", 3, ActionSpace::discrete(2), 10});
    policy_ = weights_to_safetensors(spec, initial_weights(spec, RandomStream(1)), "T");
    write_file_atomic(run_ + "/policy.safetensors", policy_);
  }
  std::string message(const std::string& from, const std::string& to) const {
    try {
      export_policy(from, to);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  }

  TemporaryFolder folder_;
  const std::string run_ = folder_ / "run";
  std::string policy_;
};

TEST_F(Export, WeightsComeOutAsTheyAre) {
  for (const std::string& from : {run_, run_ + "/", run_ + "/policy.safetensors"}) {
    export_policy(from, folder_ / "out.safetensors");
    EXPECT_EQ(read_file(folder_ / "out.safetensors"), policy_);
  }
}

TEST_F(Export, ModelIsTheSameEveryTime) {
  export_policy(run_, folder_ / "a.onnx");
  export_policy(run_, folder_ / "b.onnx");
  EXPECT_EQ(read_file(folder_ / "a.onnx"), read_file(folder_ / "b.onnx"));
  for (const char* part : {"observation", "Gemm", "Tanh", "ArgMax", "policy.0.weight", "logits"}) {
    EXPECT_NE(read_file(folder_ / "a.onnx").find(part), std::string::npos) << part;
  }
}

TEST_F(Export, PoliciesOfARunHaveNames) {
  EXPECT_EQ(policy_path(run_), run_ + "/policy.safetensors");
  EXPECT_NE(message_of([&] { policy_path(run_, "best"); }).find("best.safetensors: not there"), std::string::npos);
  write_file_atomic(run_ + "/best.safetensors", policy_);
  EXPECT_EQ(policy_path(run_, "best"), run_ + "/best.safetensors");
  EXPECT_NE(message_of([&] { policy_path(run_, "40"); }).find("of which there is none"), std::string::npos);
  for (const char* number : {"000040", "1000000"}) {
    std::filesystem::create_directories(run_ + "/checkpoints/" + number);
    write_file_atomic(run_ + "/checkpoints/" + number + "/weights.safetensors", policy_);
  }
  EXPECT_EQ(policy_path(run_, "40"), run_ + "/checkpoints/000040/weights.safetensors");
  EXPECT_EQ(load_policy(run_, "1000000").env_id, "T");
  for (const std::string wrong : {"41", "", "bset", "+40", "4e1", "99999999999999999999"}) {
    EXPECT_NE(message_of([&] { policy_path(run_, wrong); }).find("of which there are 40, 1000000"), std::string::npos);
  }
  EXPECT_NE(message_of([&] { policy_path(run_ + "/policy.safetensors", "best"); }).find("this is one policy"),
            std::string::npos);
}

TEST_F(Export, MistakesAreNamed) {
  EXPECT_NE(message(run_, folder_ / "a.pt").find("a.pt: wanted a name that ends in .onnx or .safetensors"),
            std::string::npos);
  EXPECT_NE(message(run_, folder_ / "no/a.onnx").find("there is no folder"), std::string::npos);
  EXPECT_NE(message(folder_ / "none", folder_ / "a.onnx").find("none: no such run folder or policy file"),
            std::string::npos);
  EXPECT_NE(message(folder_.path(), folder_ / "a.onnx").find("no run folder: it has neither"), std::string::npos);
  std::filesystem::remove(run_ + "/policy.safetensors");
  EXPECT_NE(message(run_, folder_ / "a.onnx").find("no policy there yet; a run saves it when it ends"),
            std::string::npos);
  write_file_atomic(run_ + "/policy.safetensors", policy_.substr(0, 100));
  EXPECT_NE(message(run_, folder_ / "a.onnx").find(run_ + "/policy.safetensors: "), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "a.onnx"));
}

}  // namespace
}  // namespace gipo
