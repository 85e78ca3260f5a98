#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace gipo {

class ByteReader;
class ByteWriter;

// The safetensors format: a little-endian u64 with the length of a JSON header, the header, then the tensors' bytes
// without gaps. The header is padded with spaces so that the bytes begin at a multiple of 8.

enum class TensorType { kF32, kF64, kI64, kU8, kBF16, kF16 };  // the last two: by their bits alone

std::string_view name_of(TensorType type);  // "F32"
std::size_t size_of(TensorType type);       // bytes of one element

template <class T>
constexpr TensorType tensor_type() {
  static_assert(std::is_same_v<T, float> || std::is_same_v<T, double> || std::is_same_v<T, std::int64_t> ||
                std::is_same_v<T, std::uint8_t>);
  if constexpr (std::is_same_v<T, float>) return TensorType::kF32;
  if constexpr (std::is_same_v<T, double>) return TensorType::kF64;
  if constexpr (std::is_same_v<T, std::int64_t>) return TensorType::kI64;
  return TensorType::kU8;
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

// A tensor that is written piece by piece, from wherever it lies.
struct TensorSource {
  std::string name;
  TensorType type = TensorType::kF32;
  Shape shape;
  std::function<void(ByteWriter&)> write;  // exactly its bytes
};
TensorSource source_of(const TensorView& tensor);  // the bytes stay the caller's
// The same file, handed on as it is made.
void write_safetensors(std::vector<TensorSource> tensors, const TensorMetadata& metadata, ByteWriter& out);

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

  std::string bytes_, where_;
  TensorMetadata metadata_;
  std::map<std::string, Entry> entries_;
};

// A file that is mapped into memory: of its tensors only what is looked at is read. Damage throws Error, which begins with
// the path.
class MappedTensors {
 public:
  explicit MappedTensors(std::string path);
  ~MappedTensors();
  MappedTensors(const MappedTensors&) = delete;
  MappedTensors& operator=(const MappedTensors&) = delete;

  const std::string& path() const { return path_; }
  const std::map<std::string, SafeTensors::Entry>& entries() const { return entries_; }
  std::string_view bytes(const SafeTensors::Entry& entry) const {
    return {data_ + entry.begin, entry.end - entry.begin};
  }
  void release(const SafeTensors::Entry& entry) const;  // its pages are not needed again soon

 private:
  std::string path_;
  const char* data_ = nullptr;
  std::size_t size_ = 0;
  std::map<std::string, SafeTensors::Entry> entries_;
};

// A file that is read from its beginning to its end, one tensor after the other, none of it kept. Damage throws Error.
class TensorReader {
 public:
  explicit TensorReader(ByteReader& in);  // of all that is left in it

  const TensorMetadata& metadata() const { return metadata_; }
  bool next();  // whether there is another tensor; it must be read before the next one
  const std::string& name() const { return tensors_[at_ - 1].first; }
  const SafeTensors::Entry& entry() const { return tensors_[at_ - 1].second; }
  // Its values, of whichever of the two types of floats. Throws Error when it is another type or shape.
  template <class T>
  void read_floats(const Shape& shape, std::span<T> out);
  std::string read_bytes();              // of a tensor of U8, whatever its size
  void read_bytes(std::span<char> out);  // the same in pieces, which must come to all of it

 private:
  [[noreturn]] void refuse(const std::string& what) const;

  ByteReader& in_;
  TensorMetadata metadata_;
  std::vector<std::pair<std::string, SafeTensors::Entry>> tensors_;  // in the order of their bytes
  std::size_t at_ = 0;
};

}  // namespace gipo
