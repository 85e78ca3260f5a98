#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace gipo {

// The safetensors format: a little-endian u64 with the length of a JSON header, the header, then the tensors' bytes
// without gaps. The header is padded with spaces so that the bytes begin at a multiple of 8.

enum class TensorType { kF32, kF64, kI64 };

std::string_view name_of(TensorType type);  // "F32"
std::size_t size_of(TensorType type);       // bytes of one element

template <class T>
constexpr TensorType tensor_type() {
  static_assert(std::is_same_v<T, float> || std::is_same_v<T, double> || std::is_same_v<T, std::int64_t>);
  if constexpr (std::is_same_v<T, float>) return TensorType::kF32;
  if constexpr (std::is_same_v<T, double>) return TensorType::kF64;
  return TensorType::kI64;
}

using Shape = std::vector<std::uint64_t>;
using TensorMetadata = std::map<std::string, std::string>;

// A tensor to be written; the bytes stay the caller's.
struct TensorView {
  std::string name;
  TensorType type = TensorType::kF32;
  Shape shape;
  std::string_view bytes;
};

// Throws InvariantError when the shape does not hold as many elements as there are values.
TensorView view_tensor(std::string name, TensorType type, Shape shape, std::string_view bytes);
template <class T>
TensorView view_tensor(std::string name, Shape shape, std::span<const T> values) {
  return view_tensor(std::move(name), tensor_type<T>(), std::move(shape),
                     {reinterpret_cast<const char*>(values.data()), values.size_bytes()});
}

// The file as bytes; the same bytes for the same tensors in whatever order. Names are unique and not "__metadata__".
std::string write_safetensors(std::span<const TensorView> tensors, const TensorMetadata& metadata = {});

// A file that was read. Damage throws Error, which begins with `where` (the path), before anything large is allocated.
class SafeTensors {
 public:
  struct Entry {
    TensorType type = TensorType::kF32;
    Shape shape;
    std::size_t begin = 0, end = 0;  // in the file
  };

  SafeTensors(std::string bytes, std::string where);

  const TensorMetadata& metadata() const { return metadata_; }
  const std::map<std::string, Entry>& entries() const { return entries_; }
  bool contains(const std::string& name) const { return entries_.contains(name); }

  // Copies a tensor out. Throws Error when it is missing or of another type or shape.
  template <class T>
  void read(const std::string& name, const Shape& shape, std::span<T> out) const {
    read_bytes(name, tensor_type<T>(), shape, {reinterpret_cast<char*>(out.data()), out.size_bytes()});
  }
  // The same where the file decides the shape.
  template <class T>
  std::vector<T> read(const std::string& name) const {
    const Entry& entry = find(name);
    std::vector<T> out((entry.end - entry.begin) / size_of(entry.type));
    read(name, entry.shape, std::span<T>(out));
    return out;
  }

 private:
  const Entry& find(const std::string& name) const;
  void read_bytes(const std::string& name, TensorType type, const Shape& shape, std::span<char> out) const;
  void parse();

  std::string bytes_, where_;
  TensorMetadata metadata_;
  std::map<std::string, Entry> entries_;
};

}  // namespace gipo
