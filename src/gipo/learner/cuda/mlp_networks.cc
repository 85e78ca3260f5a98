#include <algorithm>
#include <optional>

#include "gipo/learner/cuda/card_networks.h"
#include "gipo/learner/cuda/network.h"
#include "gipo/policy/mlp_policy.h"

namespace gipo::cuda {
namespace {

class MlpNetworks final : public CardNetworks {
 public:
  MlpNetworks(const LearnerSetup& setup, const NetworkPlaces& places, cudaStream_t stream)
      : shapes_(mlp_shapes(setup.model)),
        places_(places),
        stream_(stream),
        products_(setup.learner.products),
        n_(static_cast<int>(setup.learner.batch_size)),
        rows_(rows_of(setup)),
        shared_(static_cast<int>(shapes_.shared)),
        width_(static_cast<int>(setup.model.observation_size)),
        privileged_(static_cast<int>(setup.model.privileged)),
        policy_(shapes_.policy, shared_ > 0 ? rows_ : n_, n_, places.policy_gradient, shapes_.shared - 1,
                shared_ > 0 ? privileged_ : 0),
        critic_(shapes_.critic, rows_, n_, places.critic_gradient) {
    if (places.average) average_.emplace(shapes_.policy, n_, 0);
    prepare_products(products_);
  }

  const float* outputs() const override { return policy_.outputs(); }
  const float* average_outputs() const override { return average_ ? average_->outputs() : nullptr; }
  const float* values() const override { return critic_.outputs(); }

  void forward(Kind kind, const Staging& batch) override;
  void backward(Kind kind, const Staging& batch) override;
  void gradient_parts(int critic_base, std::vector<GradientPart>& policy,
                      std::vector<GradientPart>& critic) const override {
    policy_.gradient_parts(0, false, policy);
    critic_.gradient_parts(critic_base, true, critic);
  }

  std::function<void()> record(Kind, const Staging&, const std::function<void()>& work) override {
    const auto graph = std::make_shared<Graph>();
    graph->begin(stream_);
    work();
    graph->end(stream_);
    return [graph, stream = stream_] { graph->run(stream); };
  }
  std::size_t shape_of(const Staging&) const override { return 0; }  // how many rows there are is read on the card

 private:
  MlpShapes shapes_;
  NetworkPlaces places_;
  cudaStream_t stream_;
  ProductKind products_;
  int n_, rows_, shared_, width_, privileged_;
  Network policy_, critic_;
  std::optional<Network> average_;
};

// Layers of different networks that wait for the same are one launch: the critic's first waits for those it shares.
void MlpNetworks::forward(Kind kind, const Staging& batch) {
  const int* rows = rows_ == n_ ? nullptr : &batch.header()->rows;
  const bool policy = kind != Kind::kValuesAlone;
  const float* observation = batch.observation();
  for (int level = 0; level < std::max(policy_.layers(), shared_ + critic_.layers()); ++level) {
    std::vector<Product> products;
    std::vector<NormLayer> norms;
    const auto add = [&](const Network& net, int layer, const float* weights, const float* x, int ldx, int most,
                         const int* on_card) {
      if (layer > 0) x = net.output(layer - 1), ldx = net.stride(layer - 1);
      products.push_back(net.forward(layer, weights, x, ldx, most, on_card));
      if (net.has_norm(layer)) norms.push_back(net.norm(layer, weights, most, on_card));
    };
    const bool by_both = level < shared_;
    if (level < policy_.layers() && (policy || by_both)) {
      add(policy_, level, places_.policy, observation, width_, by_both ? rows_ : n_, by_both ? rows : nullptr);
    }
    if (average_ && policy && level < policy_.layers()) {
      add(*average_, level, places_.average, observation, width_, n_, nullptr);
    }
    if (const int layer = level - shared_; layer >= 0 && layer < critic_.layers()) {
      const float* seen = shared_ > 0 ? policy_.output(shared_ - 1) : observation;
      add(critic_, layer, places_.critic, seen, shared_ > 0 ? policy_.stride(shared_ - 1) : width_, rows_, rows);
    }
    run_products(launch_of(products), products_, stream_);
    run_norms(norms, stream_);
    if (shared_ > 0 && level == shared_ - 1 && privileged_ > 0) {
      // What the critic alone sees stands behind the features.
      const int stride = policy_.stride(shared_ - 1);
      copy_columns(observation + width_ - privileged_, width_, policy_.output(shared_ - 1) + stride - privileged_,
                   stride, privileged_, rows_, stream_);
    }
  }
}

void MlpNetworks::backward(Kind kind, const Staging& batch) {
  for (int level = 0; level < std::max(policy_.layers(), critic_.layers()); ++level) {
    std::vector<Product> products;
    std::vector<NormLayer> norms;
    const auto add = [&](const Network& net, const float* weights, const float* x, int ldx, const float* d_output) {
      const int layer = net.layers() - 1 - level;
      if (layer < 0) return;
      if (layer > 0) x = net.output(layer - 1), ldx = net.stride(layer - 1);
      net.backward(layer, weights, x, ldx, level == 0 ? d_output : nullptr, products);
      if (layer > 0 && net.has_norm(layer - 1)) norms.push_back(net.norm_backward(layer - 1, weights));
    };
    if (kind == Kind::kAll) add(policy_, places_.policy, batch.observation(), width_, places_.d_outputs);
    add(critic_, places_.critic, shared_ > 0 ? policy_.output(shared_ - 1) : batch.observation(),
        shared_ > 0 ? policy_.stride(shared_ - 1) : width_, places_.d_value);
    run_products(launch_of(products), products_, stream_);
    run_norms_backward(norms, stream_);
  }
}

}  // namespace

std::unique_ptr<CardNetworks> make_mlp_networks(const LearnerSetup& setup, const NetworkPlaces& places,
                                                cudaStream_t stream) {
  return std::make_unique<MlpNetworks>(setup, places, stream);
}

double mlp_bytes(const LearnerSetup& setup) {
  const MlpShapes shapes = mlp_shapes(setup.model);
  const auto n = static_cast<int>(setup.learner.batch_size);
  const int rows = rows_of(setup);
  return network_bytes(shapes.policy, shapes.shared > 0 ? rows : n, n) + network_bytes(shapes.critic, rows, n) +
         (looks_at_average(setup) ? network_bytes(shapes.policy, n, 0) : 0);
}

}  // namespace gipo::cuda
