#include "gipo/data/wire.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "gipo/core/error.h"
#include "gipo/core/finite.h"
#include "gipo/io/bytes.h"
#include "gipo/io/checksum.h"

namespace gipo {
namespace {

constexpr char kMagic[8] = {'g', 'i', 'p', 'o', '.', 's', 'e', 'g'};
constexpr std::uint32_t kFormat = 1;
constexpr std::uint64_t kTerminated = 1, kTruncated = 2, kDiscounted = 4;
constexpr unsigned kContextShift = 8;  // the rest of the flags: observations of the context

// What stands before the columns, as it lies in the message.
struct Head {
  char magic[8];
  std::uint32_t format, fingerprint;
  std::uint64_t actor, incarnation, sequence, steps, flags;
  double first_env_step, env_step_stride;
};
static_assert(sizeof(Head) == 72);

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// What is both copied and summed up goes through the nearest cache once: large segments are slowed by memory.
constexpr std::size_t kPiece = 1 << 14;

[[noreturn]] void refuse(const std::string& why) { throw Error("message with a segment: " + why); }

void check_head(const Head& head, std::size_t bytes, const Segment& segment) {
  if (std::memcmp(head.magic, kMagic, sizeof kMagic) != 0) refuse("it does not begin with gipo.seg");
  if (head.format != kFormat) refuse(fmt::format("its format is {}, this program reads {}", head.format, kFormat));
  const TransitionLayout& layout = segment.layout();
  if (const std::uint32_t own = layout.fingerprint; head.fingerprint != own) {
    refuse(fmt::format("its columns have the fingerprint {:08x}, those of this run {:08x}", head.fingerprint, own));
  }
  if (head.steps == 0 || head.steps > segment.capacity()) {
    refuse(fmt::format("it has {} steps, wanted 1 to {}", head.steps, segment.capacity()));
  }
  const std::uint64_t context = head.flags >> kContextShift, flags = head.flags - (context << kContextShift);
  if (flags > (kTerminated | kTruncated | kDiscounted)) refuse(fmt::format("unknown flags {:#x}", head.flags));
  if (context > layout.spec.context()) {
    refuse(fmt::format("{} observations of before it, wanted at most {}", context, layout.spec.context()));
  }
  const std::size_t size = wire_bytes(layout, static_cast<std::size_t>(head.steps), static_cast<std::size_t>(context),
                                      (head.flags & kDiscounted) != 0);
  if (bytes != size) refuse(fmt::format("{} bytes, {} steps have {}", bytes, head.steps, size));
  const auto count = [](double v) { return v >= 0 && v <= 1e18; };  // NaN is none
  if (!count(head.first_env_step) || !count(head.env_step_stride)) {
    refuse(fmt::format("environment steps {} and {} between two: wanted 0 to 1e18", head.first_env_step,
                       head.env_step_stride));
  }
}

}  // namespace

std::size_t wire_bytes(const TransitionLayout& layout, std::size_t steps, std::size_t context, bool discounted) {
  std::size_t size = sizeof(Head) + (discounted ? steps * sizeof(float) : 0) + sizeof(std::uint32_t);
  const RowCounts rows = rows_of_segment(steps, context);
  for (std::size_t c = 0; c < layout.columns.size(); ++c) size += rows.of(layout.columns[c].rows) * layout.row_bytes[c];
  return size;
}

void encode(const Segment& segment, ByteWriter& out) {
  std::uint32_t crc = 0;
  const auto put = [&](std::span<const std::byte> bytes) {
    for (std::string_view rest = text_of(bytes); !rest.empty(); rest.remove_prefix(std::min(kPiece, rest.size()))) {
      crc = crc32c(rest.substr(0, kPiece), crc);
      out.append(rest.substr(0, kPiece));
    }
  };
  const bool discounted = segment.discounted_sums.count() > 0;
  Head head{{},
            kFormat,
            segment.layout().fingerprint,
            segment.actor,
            segment.incarnation,
            segment.sequence,
            segment.length,
            (segment.terminated ? kTerminated : 0) | (segment.truncated ? kTruncated : 0) |
                (discounted ? kDiscounted : 0) | (segment.context << kContextShift),
            segment.first_env_step,
            segment.env_step_stride};
  std::memcpy(head.magic, kMagic, sizeof kMagic);
  put(std::as_bytes(std::span(&head, 1)));
  for (std::size_t c = 0; c < segment.layout().columns.size(); ++c) put(segment.filled(c));
  if (discounted) put(std::as_bytes(std::span(segment.discounted).first(segment.length)));
  out.value(crc);
}

void decode(std::string_view message, Segment& segment, bool sums) {
  decode(message.size(), in_order(message), segment, sums);
}

std::uint32_t decode(std::size_t bytes, const ByteReader::Source& next, Segment& segment, bool sums) {
  segment.clear();
  std::uint32_t crc = 0, sent = 0;
  const auto fill = [&](std::span<std::byte> out) {
    for (std::size_t size = 0; !out.empty(); out = out.subspan(size)) {
      size = std::min(kPiece, out.size());
      char* const to = reinterpret_cast<char*>(out.data());
      next(to, size);
      crc = crc32c({to, size}, crc);
    }
  };
  Head head;
  if (bytes < sizeof head + sizeof sent) {
    refuse(fmt::format("cut short: {} bytes, the shortest has {}", bytes, sizeof head + sizeof sent));
  }
  fill(std::as_writable_bytes(std::span(&head, 1)));
  check_head(head, bytes, segment);
  segment.actor = head.actor;
  segment.incarnation = head.incarnation;
  segment.sequence = head.sequence;
  segment.length = static_cast<std::size_t>(head.steps);
  segment.context = static_cast<std::size_t>(head.flags >> kContextShift);
  segment.terminated = (head.flags & kTerminated) != 0;
  segment.truncated = (head.flags & kTruncated) != 0;
  segment.first_env_step = head.first_env_step;
  segment.env_step_stride = head.env_step_stride;
  const std::size_t columns = segment.layout().columns.size();
  const auto discounted = std::span(segment.discounted).first((head.flags & kDiscounted) != 0 ? segment.length : 0);
  try {
    for (std::size_t c = 0; c < columns; ++c) fill(segment.filled(c));
    fill(std::as_writable_bytes(discounted));
    next(reinterpret_cast<char*>(&sent), sizeof sent);
    if (crc != sent) {
      refuse(fmt::format("damaged: its checksum is {:08x}, that of its bytes {:08x}", sent, crc));
    }
    for (std::size_t c = 0; c < columns; ++c) {
      segment.layout().refuse_impossible(c, segment.filled(c), "message with a segment");
    }
    if (!all_finite(discounted)) {
      throw Error("message with a segment has a number that no step has: a discounted return that is not finite");
    }
    segment.discounted_sums.set(discounted);
  } catch (const Error&) {
    segment.clear();
    throw;
  }
  if (sums) segment.sum_observations();
  std::fill(segment.value.begin(), segment.value.end(), 0.0F);
  return crc;
}

ByteReader::Source in_order(std::string_view message) {
  return [message](char* out, std::size_t size) mutable {
    std::memcpy(out, message.data(), size);
    message.remove_prefix(size);
  };
}

}  // namespace gipo
