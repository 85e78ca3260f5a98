// What benchmarks ask of the card.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>

namespace gipo::cuda {

// Seconds of what `put` puts into the stream, by the card's clock: the median over rounds of `times` each.
double median_seconds(cudaStream_t stream, int times, const std::function<void()>& put);

}  // namespace gipo::cuda
