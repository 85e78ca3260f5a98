// Memory and calls of the CUDA runtime, for this folder and population/cuda/ alone.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <string>
#include <utility>

namespace gipo::cuda {

// Throws RunError with the runtime's own words where a call failed.
void check(cudaError_t result, const char* what);

// Throws Error where this card cannot be used, saying who wants it and who needs none.
void check_card_usable(int card, const std::string& wanted_by, const char* others);

// Memory of the card, made once. All zero at first.
void* allocate_on_card(std::size_t bytes);
// Memory of the host that the card reads and writes by itself.
void* allocate_pinned(std::size_t bytes);
void free_on_card(void* memory);
void free_pinned(void* memory);

template <class T, void* (*allocate)(std::size_t), void (*release)(void*)>
class Array {
 public:
  Array() = default;
  explicit Array(std::size_t size)
      : data_(size > 0 ? static_cast<T*>(allocate(size * sizeof(T))) : nullptr), size_(size) {}
  ~Array() { release(data_); }
  Array(Array&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, std::size_t{0})) {}
  Array& operator=(Array&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }

  T* data() const { return data_; }
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T& operator[](std::size_t i) const { return data_[i]; }  // on the host alone

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
};
template <class T>
using CardArray = Array<T, allocate_on_card, free_on_card>;
template <class T>
using PinnedArray = Array<T, allocate_pinned, free_pinned>;

class Stream {
 public:
  Stream();
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator cudaStream_t() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

// A moment in a stream. One that was never recorded is over.
class Event {
 public:
  Event();
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  void record(cudaStream_t stream);
  void wait() const;                          // on the host
  void hold_back(cudaStream_t stream) const;  // what is put into the stream from now on
  operator cudaEvent_t() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

// What is put into a stream between the two calls, to be run as one.
class Graph {
 public:
  Graph() = default;
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  void begin(cudaStream_t stream);
  void end(cudaStream_t stream);
  void run(cudaStream_t stream) const;

 private:
  cudaGraphExec_t graph_ = nullptr;
};

}  // namespace gipo::cuda
