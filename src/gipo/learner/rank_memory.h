#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "gipo/kernels/adamw_terms.h"

namespace gipo {

// What a rank does with parameters, gradients and moments where they lie: on the host, or on its CUDA device, where nothing
// else may look into the spans that this makes.
class RankMemory {
 public:
  virtual ~RankMemory() = default;
  virtual std::span<float> make(std::size_t size) = 0;  // zeros, while this lives
  virtual void read(std::span<const float> there, std::span<float> here) = 0;
  virtual void write(std::span<const float> here, std::span<float> there) = 0;
  virtual void clear(std::span<float> there) = 0;
  virtual double sum_of_squares(std::span<const float> there) = 0;
  virtual void adamw(const AdamWStep<float>& step, std::span<const float> gradient, std::span<float> parameters,
                     std::span<float> first, std::span<float> second) = 0;
  // average += towards (parameters - average)
  virtual void move_average(std::span<float> average, std::span<const float> parameters, float towards) = 0;
};

std::unique_ptr<RankMemory> make_host_memory();
// tf32: of all products there.
std::unique_ptr<RankMemory> make_device_memory(const std::string& device, bool tf32);

}  // namespace gipo
