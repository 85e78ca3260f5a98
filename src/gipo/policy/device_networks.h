#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "gipo/policy/policy.h"

namespace gipo {

// Where a learner that lives on a device keeps what networks read and write. N: the steps of a batch.
struct DeviceBuffers {
  float *policy = nullptr, *critic = nullptr;  // parameters, flat
  float* average = nullptr;                    // the policy's moving average; null: nobody looks at it
  float *policy_gradient = nullptr, *critic_gradient = nullptr;  // of the networks' parameters, written
  float *outputs = nullptr, *average_outputs = nullptr;          // [N, outputs], written
  float* values = nullptr;                                       // [rows], written
  const float *d_outputs = nullptr, *d_values = nullptr;         // [N, outputs], [N]
};

// A batch there.
struct DeviceInput {
  const float* floats = nullptr;      // [rows, observation_size] scaled
  std::vector<const std::byte*> raw;  // [fields] what encoders read
  std::size_t rows = 0;
  const float* state = nullptr;              // with memory: [sequences, state_size]
  std::span<const Sequence> sequences = {};  // of the host
};

// libtorch's networks of a policy, its average and its critic over buffers of one device, which stay where they are:
//
//   forward: parameters, batch -> outputs, average_outputs, values;  backward: d_outputs, d_values -> gradients
//
// What is called is put into the stream that it was made with and is not waited for. One thread at a time.
class DeviceNetworks {
 public:
  virtual ~DeviceNetworks() = default;

  virtual void forward(const DeviceInput& input, bool policy) = 0;  // policy: not the critic alone
  virtual void backward(bool policy) = 0;
  // Work that calls the two above, to be run again and again: as one graph where its shapes stay the same, which is
  // recorded here. Both must have been called once before.
  virtual std::function<void()> record(const std::function<void()>& work) = 0;
};

// room: that of the learner. stream: of CUDA; null on the CPU.
std::unique_ptr<DeviceNetworks> make_device_networks(const ModelSpec& spec, const PolicyRoom& room,
                                                     const DeviceBuffers& buffers, void* stream);

}  // namespace gipo
