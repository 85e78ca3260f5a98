// The learner's state. One that loads can make updates; they may find that its numbers lead nowhere.
#include "gipo/core/error.h"
#include "gipo/core/thread_pool.h"
#include "gipo/io/bytes.h"
#include "gipo/learner/learner.h"

namespace {

constexpr std::size_t kBatch = 4;

std::unique_ptr<gipo::Learner> make_learner() {
  static gipo::ThreadPool pool(1);
  gipo::LearnerSetup setup;
  setup.model =
      gipo::make_model_spec(gipo::PolicyOptions{.hidden = {2}}, {"T", "", 2, gipo::ActionSpace::box({-1}, {1}), 10});
  setup.learner.batch_size = kBatch;
  setup.learner.proximal_coef = 0.1;
  return gipo::make_learner(setup, gipo::RandomStream(1), pool);
}

gipo::Batch batch() {
  gipo::Batch b(kBatch, gipo::plain_transition(2, 1));
  for (std::size_t i = 0; i < kBatch; ++i) b.observation()[i] = b.reward()[i] = static_cast<float>(i);
  b.stretches = {{0, 3, true}, {3, 1, false}};
  return b;
}

}  // namespace

std::vector<std::string> valid_inputs() {
  std::vector<std::string> inputs;
  const auto learner = make_learner();
  for (int i = 0; i < 2; ++i) {
    gipo::ByteWriter out;
    learner->save(out);
    inputs.push_back(out.take());
    learner->update(batch(), {});
  }
  return inputs;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto learner = make_learner();
  gipo::ByteReader in({reinterpret_cast<const char*>(data), size});
  try {
    learner->load(in);
    for (int i = 0; i < 2; ++i) learner->update(batch(), {100, true});
    gipo::Weights weights;
    learner->copy_weights(weights);
  } catch (const gipo::Error&) {
  } catch (const gipo::RunError&) {  // diverged
  }
  return 0;
}
