#include "gipo/io/safetensors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "gipo/core/error.h"
#include "gipo/io/bytes.h"
#include "gipo/io/json_text.h"

namespace gipo {
namespace {

using nlohmann::json;

static_assert(std::endian::native == std::endian::little, "tensors are stored little-endian");

constexpr std::size_t kLengthBytes = 8;
constexpr JsonLimits kHeaderLimits{16 * 1024 * 1024, 4};  // a tensor's shape is three deep
constexpr const char* kMetadata = "__metadata__";

struct TypeRow {
  TensorType type;
  std::string_view name;
  std::size_t size;
};
constexpr std::array<TypeRow, 6> kTypes{{{TensorType::kF32, "F32", 4},
                                         {TensorType::kF64, "F64", 8},
                                         {TensorType::kI64, "I64", 8},
                                         {TensorType::kU8, "U8", 1},
                                         {TensorType::kBF16, "BF16", 2},
                                         {TensorType::kF16, "F16", 2}}};

const TypeRow& row_of(TensorType type) { return kTypes[static_cast<std::size_t>(type)]; }

std::string in_words(TensorType type, const Shape& shape) {
  return fmt::format("{} [{}]", name_of(type), fmt::join(shape, ", "));
}

// Bytes of a tensor, or nothing where that number does not fit: a damaged shape must not wrap around to a small one.
std::optional<std::uint64_t> bytes_of(TensorType type, const Shape& shape) {
  std::uint64_t bytes = size_of(type);
  for (const std::uint64_t dim : shape) {
    if (__builtin_mul_overflow(bytes, dim, &bytes)) return std::nullopt;
  }
  return bytes;
}

// Everything the header says of one tensor, each part checked. The offsets count from the end of the header.
SafeTensors::Entry parse_entry(const std::string& name, const json& value, std::uint64_t data_bytes) {
  const auto refuse = [&name](const std::string& what) { throw Error("tensor " + name + ": " + what); };
  if (!value.is_object() || !value.contains("dtype") || !value.contains("shape") || !value.contains("data_offsets")) {
    refuse("dtype, shape or data_offsets is missing");
  }
  SafeTensors::Entry entry;

  const json& type = value["dtype"];
  const auto* row = std::find_if(kTypes.begin(), kTypes.end(),
                                 [&](const TypeRow& r) { return type.is_string() && type == json(r.name); });
  if (row == kTypes.end()) {
    refuse("dtype is " + (type.is_string() ? type.dump() : "no text") + ", F32, F64, I64, U8, BF16 and F16 are known");
  }
  entry.type = row->type;

  const auto whole = [](const json& v) { return v.is_number_unsigned(); };
  const json& shape = value["shape"];
  if (!shape.is_array() || !std::all_of(shape.begin(), shape.end(), whole)) refuse("shape is no list of sizes");
  entry.shape = shape.get<Shape>();

  const json& offsets = value["data_offsets"];
  if (!offsets.is_array() || offsets.size() != 2 || !std::all_of(offsets.begin(), offsets.end(), whole)) {
    refuse("data_offsets is no pair of offsets");
  }
  const auto begin = offsets[0].get<std::uint64_t>();
  const auto end = offsets[1].get<std::uint64_t>();
  if (begin > end || end > data_bytes) {
    refuse(fmt::format("bytes {} to {} lie outside the {} bytes of data", begin, end, data_bytes));
  }
  if (bytes_of(entry.type, entry.shape) != end - begin) {
    refuse(fmt::format("{} does not fill {} bytes", in_words(entry.type, entry.shape), end - begin));
  }
  entry.begin = static_cast<std::size_t>(begin);
  entry.end = static_cast<std::size_t>(end);
  return entry;
}

TensorMetadata parse_metadata(const json& value) {
  const auto is_text = [](const json& v) { return v.is_string(); };
  if (!value.is_object() || !std::all_of(value.begin(), value.end(), is_text)) {
    throw Error("__metadata__ is no map of texts");
  }
  return value.get<TensorMetadata>();
}

// Every byte of data belongs to exactly one tensor: nothing overlaps, nothing hides in between.
void check_tiling(const std::map<std::string, SafeTensors::Entry>& entries, std::size_t data_bytes) {
  std::vector<std::pair<std::size_t, std::size_t>> ranges;
  ranges.reserve(entries.size());
  for (const auto& [name, entry] : entries) ranges.emplace_back(entry.begin, entry.end);
  std::sort(ranges.begin(), ranges.end());
  std::size_t at = 0;
  for (const auto& [begin, end] : ranges) {
    if (begin != at) throw Error(fmt::format("tensors leave a gap or overlap at byte {} of the data", at));
    at = end;
  }
  if (at != data_bytes) throw Error(fmt::format("tensors end at byte {} of {} bytes of data", at, data_bytes));
}

std::string make_header(std::span<const TensorSource> ordered, const TensorMetadata& metadata) {
  json header = json::object();
  if (!metadata.empty()) header[kMetadata] = metadata;
  std::size_t at = 0;
  for (const TensorSource& tensor : ordered) {
    const std::size_t end = at + bytes_of(tensor.type, tensor.shape).value();
    header[tensor.name] = {{"dtype", name_of(tensor.type)}, {"shape", tensor.shape}, {"data_offsets", {at, end}}};
    at = end;
  }
  // Metadata may quote what a user typed; a byte that is no UTF-8 must not lose a checkpoint.
  std::string text = header.dump(-1, ' ', false, json::error_handler_t::replace);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

struct Header {
  TensorMetadata metadata;
  std::map<std::string, SafeTensors::Entry> entries;  // their offsets count from the end of the header
};

Header parse_header(std::string_view text, std::size_t data_bytes) {
  const auto json_header = parse_json<json>(text, "header", kHeaderLimits);
  if (!json_header.is_object()) throw Error("header is no JSON object");
  Header header;
  for (const auto& [name, value] : json_header.items()) {
    if (name == kMetadata) {
      header.metadata = parse_metadata(value);
    } else {
      header.entries.emplace(name, parse_entry(name, value, data_bytes));
    }
  }
  check_tiling(header.entries, data_bytes);
  return header;
}

void check_header_bytes(std::uint64_t header_bytes, std::size_t file_bytes) {
  if (header_bytes > file_bytes - kLengthBytes || header_bytes > kHeaderLimits.bytes) {
    throw Error(fmt::format("header of {} bytes in a file of {}", header_bytes, file_bytes));
  }
}

// Of a whole file; offsets count from its beginning.
Header header_of_file(std::string_view bytes, const std::string& where) {
  try {
    if (bytes.size() < kLengthBytes) throw Error("too short for a safetensors file");
    std::uint64_t header_bytes = 0;
    std::memcpy(&header_bytes, bytes.data(), kLengthBytes);
    check_header_bytes(header_bytes, bytes.size());
    const auto data_begin = static_cast<std::size_t>(kLengthBytes + header_bytes);
    Header header = parse_header(bytes.substr(kLengthBytes, data_begin - kLengthBytes), bytes.size() - data_begin);
    for (auto& [name, entry] : header.entries) {
      entry.begin += data_begin;
      entry.end += data_begin;
    }
    return header;
  } catch (const Error& e) {
    throw Error(where + ": " + e.what());
  }
}

}  // namespace

std::string_view name_of(TensorType type) { return row_of(type).name; }
std::size_t size_of(TensorType type) { return row_of(type).size; }

TensorView view_tensor(std::string name, TensorType type, Shape shape, std::string_view bytes) {
  GIPO_CHECK(bytes_of(type, shape) == bytes.size());
  return {std::move(name), type, std::move(shape), bytes};
}

TensorSource source_of(const TensorView& tensor) {
  return {tensor.name, tensor.type, tensor.shape, [bytes = tensor.bytes](ByteWriter& out) { out.append(bytes); }};
}

std::string write_safetensors(std::span<const TensorView> tensors, const TensorMetadata& metadata) {
  std::vector<TensorSource> sources;
  for (const TensorView& tensor : tensors) sources.push_back(source_of(tensor));
  return gipo::bytes_of([&](ByteWriter& out) { write_safetensors(sources, metadata, out); });
}

void write_safetensors(std::vector<TensorSource> tensors, const TensorMetadata& metadata, ByteWriter& out) {
  // Wide elements first keeps each tensor aligned to its element; names then settle the order.
  std::sort(tensors.begin(), tensors.end(), [](const TensorSource& a, const TensorSource& b) {
    return size_of(a.type) != size_of(b.type) ? size_of(a.type) > size_of(b.type) : a.name < b.name;
  });
  std::set<std::string_view> names{kMetadata};
  for (const TensorSource& tensor : tensors) GIPO_CHECK(names.insert(tensor.name).second);
  const std::string header = make_header(tensors, metadata);
  out.value<std::uint64_t>(header.size());
  out.append(header);
  for (const TensorSource& tensor : tensors) tensor.write(out);
}

SafeTensors::SafeTensors(std::string bytes, std::string where) : bytes_(std::move(bytes)), where_(std::move(where)) {
  Header header = header_of_file(bytes_, where_);
  metadata_ = std::move(header.metadata);
  entries_ = std::move(header.entries);
}

MappedTensors::MappedTensors(std::string path) : path_(std::move(path)) {
  const int descriptor = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) throw Error(fmt::format("{}: {}", path_, std::strerror(errno)));
  const off_t size = ::lseek(descriptor, 0, SEEK_END);
  size_ = size > 0 ? static_cast<std::size_t>(size) : 0;
  void* const data = size_ == 0 ? nullptr : ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, descriptor, 0);
  const int error = errno;
  ::close(descriptor);
  if (data == MAP_FAILED) throw Error(fmt::format("{}: {}", path_, std::strerror(error)));
  data_ = static_cast<const char*>(data);
  try {
    entries_ = header_of_file({data_, size_}, path_).entries;
  } catch (const Error&) {
    if (data_ != nullptr) ::munmap(data, size_);
    throw;
  }
}

MappedTensors::~MappedTensors() {
  if (data_ != nullptr) ::munmap(const_cast<char*>(data_), size_);
}

void MappedTensors::release(const SafeTensors::Entry& entry) const {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t begin = (entry.begin + page - 1) / page * page, end = entry.end / page * page;
  if (begin < end) ::madvise(const_cast<char*>(data_) + begin, end - begin, MADV_DONTNEED);
}

const SafeTensors::Entry& SafeTensors::find(const std::string& name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) throw Error(where_ + ": no tensor named " + name);
  return found->second;
}

void SafeTensors::read_bytes(const std::string& name, TensorType type, const Shape& shape, std::span<char> out) const {
  const Entry& entry = find(name);
  if (entry.type != type || entry.shape != shape) {
    throw Error(fmt::format("{}: tensor {} is {} where {} belongs", where_, name, in_words(entry.type, entry.shape),
                            in_words(type, shape)));
  }
  GIPO_CHECK(out.size() == entry.end - entry.begin);
  if (!out.empty()) std::memcpy(out.data(), bytes_.data() + entry.begin, out.size());
}

TensorReader::TensorReader(ByteReader& in) : in_(in) {
  const std::size_t file_bytes = in.left();
  if (file_bytes < kLengthBytes) throw Error("too short for a safetensors file");
  const auto header_bytes = in.value<std::uint64_t>();
  check_header_bytes(header_bytes, file_bytes);
  std::string text(static_cast<std::size_t>(header_bytes), '\0');
  in.bytes_into(text);
  Header header = parse_header(text, in.left());
  metadata_ = std::move(header.metadata);
  tensors_.assign(header.entries.begin(), header.entries.end());
  // An empty tensor begins where the next one does.
  std::sort(tensors_.begin(), tensors_.end(), [](const auto& a, const auto& b) {
    return std::pair(a.second.begin, a.second.end) < std::pair(b.second.begin, b.second.end);
  });
}

bool TensorReader::next() {
  if (at_ == tensors_.size()) return false;
  ++at_;
  return true;
}

void TensorReader::refuse(const std::string& what) const {
  throw Error(fmt::format("tensor {} is {} where {} belongs", name(), in_words(entry().type, entry().shape), what));
}

template <class T>
void TensorReader::read_floats(const Shape& shape, std::span<T> out) {
  const bool floats = entry().type == TensorType::kF32 || entry().type == TensorType::kF64;
  if (!floats || entry().shape != shape) refuse(in_words(tensor_type<T>(), shape));
  if (entry().type == tensor_type<T>()) {
    return in_.bytes_into({reinterpret_cast<char*>(out.data()), out.size_bytes()});
  }
  using Other = std::conditional_t<std::is_same_v<T, float>, double, float>;
  for (T& value : out) value = static_cast<T>(in_.value<Other>());
}

std::string TensorReader::read_bytes() {
  if (entry().type != TensorType::kU8) refuse("U8");
  std::string bytes(entry().end - entry().begin, '\0');
  in_.bytes_into(bytes);
  return bytes;
}

void TensorReader::read_bytes(std::span<char> out) {
  if (entry().type != TensorType::kU8) refuse("U8");
  in_.bytes_into(out);
}

template void TensorReader::read_floats<float>(const Shape&, std::span<float>);
template void TensorReader::read_floats<double>(const Shape&, std::span<double>);

}  // namespace gipo
