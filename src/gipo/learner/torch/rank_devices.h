#pragma once

#include <chrono>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace gipo {

void stay_on_device(const std::string& device);  // with what this thread does

// NCCL between ranks that each have a CUDA device of their own. All make theirs at once. Work that takes longer than `silence`
// fails.
c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>& store, int rank, int ranks,
                                            const std::string& device, std::chrono::milliseconds silence);

}  // namespace gipo
