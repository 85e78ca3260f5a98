#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

// Writing protocol buffers, as TensorBoard's event files and ONNX models are encoded: a message is its fields one after
// another, each with its number and how its value is stored. A message within a message is bytes.
namespace gipo::protobuf {

enum class Wire : std::uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

// Little-endian, as core/bytes.h asserts of every machine that builds this.
template <class T>
void append_raw(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

inline void append_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

inline void append_key(std::string& out, std::uint32_t field, Wire wire) {
  append_varint(out, field << 3 | static_cast<std::uint32_t>(wire));
}

inline void append(std::string& out, std::uint32_t field, std::string_view bytes) {
  append_key(out, field, Wire::kBytes);
  append_varint(out, bytes.size());
  out.append(bytes);
}

// int64, int32 and enums: a negative number takes its ten bytes.
template <std::integral T>
void append(std::string& out, std::uint32_t field, T number) {
  append_key(out, field, Wire::kVarint);
  append_varint(out, static_cast<std::uint64_t>(static_cast<std::int64_t>(number)));
}

inline void append(std::string& out, std::uint32_t field, float number) {
  append_key(out, field, Wire::kFixed32);
  append_raw(out, number);
}

inline void append(std::string& out, std::uint32_t field, double number) {
  append_key(out, field, Wire::kFixed64);
  append_raw(out, number);
}

}  // namespace gipo::protobuf
