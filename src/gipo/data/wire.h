#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "gipo/data/segment.h"
#include "gipo/io/bytes.h"

namespace gipo {

// A segment as bytes, for another process or host. Little-endian, one after the other:
//   u8[8]  "gipo.seg"
//   u32    format, 1
//   u32    fingerprint of the columns (TransitionLayout::fingerprint)
//   u64    actor, incarnation, sequence, steps T
//   u64    flags: 1 terminated, 2 truncated, 4 discounted returns follow the columns
//   f64    environment steps of the run at its first step, and between two of its steps
//   rows   of each column in the order of the list: T, T + 1 or 1 of them
//   f32[T] discounted returns, where flag 4 is set
//   u32    CRC-32C of all before it
// Values of the critic are not sent: what was made of them is in the columns.

// Of a message of that many steps. discounted: with the returns.
std::size_t wire_bytes(const TransitionLayout& layout, std::size_t steps, std::size_t context, bool discounted);

// Appends the message of a closed segment.
void encode(const Segment& segment, ByteWriter& out);

// Fills a segment that the receiver made, and sums it up as the actor did. Allocates nothing, whatever the message says, but
// for the words of an error: all room is the segment's, whose size follows from the receiver's own spec and longest
// segment. That includes three doubles of sums for each float that networks read; a choice among n has n of those.
// Throws Error, naming what was expected and what came, for another format, other columns, a segment longer than this
// one can be, a message cut short or too long, damaged bytes and values that no step has; the segment is empty then.
// sums: false where nobody scales observations by theirs, which takes longer than all the rest where these are images.
void decode(std::string_view message, Segment& segment, bool sums = true);
// The same of so many bytes that come from elsewhere, each read once, to where it belongs. Returns the checksum at the end
// of the message, which is that of all before it. After an Error some of the bytes were not read.
std::uint32_t decode(std::size_t bytes, const ByteReader::Source& next, Segment& segment, bool sums = true);

// The bytes of a message that lies in memory, one after the other.
ByteReader::Source in_order(std::string_view message);

}  // namespace gipo
