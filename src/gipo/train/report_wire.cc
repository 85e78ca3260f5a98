#include "gipo/train/report_wire.h"

#include <fmt/format.h>

#include <cstring>
#include <span>
#include <string>
#include <utility>

#include "gipo/core/error.h"
#include "gipo/data/wire.h"
#include "gipo/io/bytes.h"
#include "gipo/io/checksum.h"

namespace gipo {
namespace {

constexpr char kMagic[8] = {'g', 'i', 'p', 'o', '.', 'r', 'e', 'p'};
constexpr std::uint32_t kFormat = 1;
constexpr std::uint64_t kTerminated = 1, kKnown = 2, kEver = 4, kLast = 8;

// As they lie in the message.
struct Head {
  char magic[8];
  std::uint64_t bytes;
  std::uint32_t format, crc;
};
static_assert(sizeof(Head) == kReportHeadBytes);

struct EpisodeRow {
  std::uint64_t env;
  std::int64_t number;
  double episode_return;
  std::int64_t length, env_steps, version;
  std::uint64_t flags;
};
static_assert(sizeof(EpisodeRow) == 56);

constexpr std::size_t kCount = sizeof(std::uint64_t), kCrc = sizeof(std::uint32_t);
constexpr std::size_t kShortest = sizeof(Head) + 8 * kCount + kCrc;  // one that says nothing

[[noreturn]] void refuse(const std::string& why) { throw Error("message with a report: " + why); }

std::uint32_t crc_of(const Head& head) {
  return crc32c({reinterpret_cast<const char*>(&head), sizeof head - sizeof head.crc});
}

std::size_t segment_bytes(const Segment& s) {
  return wire_bytes(s.layout(), s.length, s.context, s.discounted_sums.count() > 0);
}

std::size_t bytes_of(const ActorReport& report) {
  std::size_t bytes = kShortest + report.episodes.size() * sizeof(EpisodeRow) + report.rejections.last.size();
  for (const auto& [name, count] : report.rejections.by_name) bytes += 2 * kCount + name.size();
  for (const Segment& s : report.segments) bytes += kCount + segment_bytes(s);
  return bytes;
}

EpisodeRow row_of(const Episode& e) {
  return {e.env,
          e.number,
          e.episode_return,
          e.length,
          e.env_steps,
          e.version,
          (e.terminated ? kTerminated : 0) | (e.success.known ? kKnown : 0) | (e.success.ever ? kEver : 0) |
              (e.success.last ? kLast : 0)};
}

Episode episode_of(const EpisodeRow& row) {
  if (row.number < 0 || row.length < 1 || row.env_steps < 0 || row.version < 0) {
    refuse(
        fmt::format("episode {} of environment {} has {} steps, {} of the run, version {}: wanted none below 0, and "
                    "a step",
                    row.number, row.env, row.length, row.env_steps, row.version));
  }
  if (row.flags > (kTerminated | kKnown | kEver | kLast)) {
    refuse(fmt::format("an episode has unknown flags {:#x}", row.flags));
  }
  const auto has = [&](std::uint64_t flag) { return (row.flags & flag) != 0; };
  return {static_cast<std::size_t>(row.env),
          row.number,
          row.episode_return,
          row.length,
          row.env_steps,
          row.version,
          has(kTerminated),
          {has(kKnown), has(kEver), has(kLast)}};
}

// The checksum of a segment is not made twice where it is long.
constexpr std::size_t kWorthJoining = 2048;

// A message of a segment that ends with its checksum.
std::uint32_t joined(std::uint32_t crc, std::uint32_t segment, std::size_t size) {
  const std::string_view last(reinterpret_cast<const char*>(&segment), kCrc);
  return crc32c(last, crc32c_joined(crc, segment, size - kCrc));
}

std::size_t checked_head(const Head& head) {
  if (std::memcmp(head.magic, kMagic, sizeof kMagic) != 0) refuse("it does not begin with gipo.rep");
  if (head.format != kFormat) refuse(fmt::format("its format is {}, this program reads {}", head.format, kFormat));
  if (const std::uint32_t found = crc_of(head); found != head.crc) {
    refuse(fmt::format("damaged: the checksum of its beginning is {:08x}, that of the bytes {:08x}", head.crc, found));
  }
  if (head.bytes < kShortest) refuse(fmt::format("it has {} bytes, the shortest has {}", head.bytes, kShortest));
  return static_cast<std::size_t>(head.bytes);
}

Head read_head(std::size_t bytes, const ByteReader::Source& next) {
  Head head;
  if (bytes < sizeof head) refuse(fmt::format("cut short: {} bytes, it begins with {}", bytes, sizeof head));
  next(reinterpret_cast<char*>(&head), sizeof head);
  return head;
}

}  // namespace

void encode_report(const ActorReport& report, ByteWriter& out) {
  out.clear();
  Head head{{}, bytes_of(report), kFormat, 0};
  std::memcpy(head.magic, kMagic, sizeof kMagic);
  head.crc = crc_of(head);
  out.reserve(head.bytes);
  out.value(head);
  out.value(report.actor);
  out.value(report.incarnation);
  out.value(report.sequence);
  out.value(report.steps);
  out.value<std::uint64_t>(report.episodes.size());
  for (const Episode& e : report.episodes) out.value(row_of(e));
  out.value<std::uint64_t>(report.rejections.by_name.size());
  for (const auto& [name, count] : report.rejections.by_name) {
    out.text(name);
    out.value(count);
  }
  out.text(report.rejections.last);
  out.value<std::uint64_t>(report.segments.size());
  std::uint32_t crc = crc32c(out.bytes());
  for (const Segment& s : report.segments) {
    const std::size_t size = segment_bytes(s), begin = out.bytes().size();
    out.value<std::uint64_t>(size);
    encode(s, out);
    const std::string_view all = out.bytes();
    if (size < kWorthJoining) {
      crc = crc32c(all.substr(begin), crc);
    } else {
      std::uint32_t own;
      std::memcpy(&own, all.data() + all.size() - kCrc, kCrc);
      crc = joined(crc32c(all.substr(begin, kCount), crc), own, size);
    }
  }
  out.value(crc);
  GIPO_CHECK(out.bytes().size() == head.bytes);
}

std::size_t report_bytes(std::string_view message) {
  return checked_head(read_head(message.size(), in_order(message)));
}

// What is left of a message, and the checksum of what was read of it.
class ReportDecoder::Input {
 public:
  Input(std::size_t left, const ByteReader::Source& next, const Head& head)
      : left_(left), next_(next), crc_(crc32c({reinterpret_cast<const char*>(&head), sizeof head})) {}

  std::size_t left() const { return left_; }
  std::uint32_t crc() const { return crc_; }
  void bytes(char* out, std::size_t size) {
    if (size > left_) refuse(fmt::format("cut short: {} bytes wanted, {} left", size, left_));
    next_(out, size);
    crc_ = crc32c({out, size}, crc_);
    left_ -= size;
  }
  template <class T>
  T value() {
    T v;
    bytes(reinterpret_cast<char*>(&v), sizeof v);
    return v;
  }
  // How many of something follow, which take at least `each` bytes.
  std::size_t count(std::size_t each, const char* what) {
    const auto n = value<std::uint64_t>();
    if (n > left_ / each) refuse(fmt::format("it has {} {}, with {} bytes left", n, what, left_));
    return static_cast<std::size_t>(n);
  }
  std::string text(const char* what) {
    std::string text(count(1, what), '\0');
    bytes(text.data(), text.size());
    return text;
  }
  void segment(Segment& s, bool sums) {
    const std::size_t size = count(1, "bytes of a segment");
    if (size < kWorthJoining) {
      gipo::decode(
          size, [this](char* out, std::size_t n) { bytes(out, n); }, s, sums);
    } else {
      crc_ = joined(crc_, gipo::decode(size, next_, s, sums), size);
      left_ -= size;
    }
  }

 private:
  std::size_t left_;
  const ByteReader::Source& next_;
  std::uint32_t crc_;
};

ReportDecoder::ReportDecoder(std::size_t segment_length, TransitionSpec transition, bool sums)
    : segment_length_(segment_length), transition_(std::move(transition)), sums_(sums) {}

ActorReport& ReportDecoder::decode(std::string_view message) {
  if (const std::size_t bytes = report_bytes(message); message.size() > bytes) {
    refuse(fmt::format("too long: {} bytes, wanted {}", message.size(), bytes));
  }
  return decode(message.size(), in_order(message));
}

ActorReport& ReportDecoder::decode(std::size_t bytes, const ByteReader::Source& next) {
  clear();
  const Head head = read_head(bytes, next);
  const std::size_t wanted = checked_head(head);
  if (bytes < wanted) refuse(fmt::format("cut short: {} bytes, wanted {}", bytes, wanted));
  try {
    Input in(wanted - sizeof head - kCrc, next, head);
    read(in);
    std::uint32_t sent;
    next(reinterpret_cast<char*>(&sent), sizeof sent);
    if (sent != in.crc()) {
      refuse(fmt::format("damaged: its checksum is {:08x}, that of its bytes {:08x}", sent, in.crc()));
    }
  } catch (const Error&) {
    clear();
    throw;
  }
  return report_;
}

void ReportDecoder::clear() {
  for (Segment& s : report_.segments) spare_.push_back(std::move(s));
  report_.segments.clear();
  report_.episodes.clear();
  report_.rejections.clear();
  report_.steps = 0;
}

void ReportDecoder::read(Input& in) {
  report_.actor = in.value<std::uint64_t>();
  report_.incarnation = in.value<std::uint64_t>();
  report_.sequence = in.value<std::uint64_t>();
  report_.steps = in.value<std::int64_t>();
  if (report_.steps < 0) refuse(fmt::format("it has {} environment steps, wanted 0 or more", report_.steps));
  for (std::size_t i = in.count(sizeof(EpisodeRow), "episodes"); i > 0; --i) {
    report_.episodes.push_back(episode_of(in.value<EpisodeRow>()));
  }
  Rejections& rejections = report_.rejections;
  for (std::size_t i = in.count(2 * kCount, "kinds of fault"); i > 0; --i) {
    std::string name = in.text("bytes of the name of a fault");
    if (!rejections.by_name.empty() && name <= rejections.by_name.rbegin()->first) {
      refuse(fmt::format("the fault {} does not come after {}", name, rejections.by_name.rbegin()->first));
    }
    const auto count = in.value<std::uint64_t>();
    rejections.by_name.emplace(std::move(name), count);
    rejections.count += count;
  }
  rejections.last = in.text("bytes of the last fault");
  for (std::size_t i = in.count(kCount, "segments"); i > 0; --i) {
    if (spare_.empty()) spare_.emplace_back(segment_length_, transition_);
    Segment& s = report_.segments.emplace_back(std::move(spare_.back()));
    spare_.pop_back();
    in.segment(s, sums_);
    if (s.incarnation != report_.incarnation) {
      refuse(fmt::format("a segment of incarnation {} in a report of {}", s.incarnation, report_.incarnation));
    }
  }
  if (in.left() > 0) refuse(fmt::format("{} bytes follow the last segment", in.left()));
}

}  // namespace gipo
