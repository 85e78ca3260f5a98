#pragma once

#include <cstddef>
#include <span>

#include "gipo/data/spec.h"

namespace gipo {

// What networks read of typed fields. Numbers as they are; choices one-hot; bytes of two dimensions or more are an image,
// divided by 255. Fields follow each other in the order of the spec: those of the policy, then those of the critic alone.
std::size_t policy_width(const Fields& fields);  // floats that the policy reads
std::size_t critic_width(const Fields& fields);  // floats that the critic reads beside them

// Where the fields of n observations lie: field f of observation i at columns[f] + i * fields[f].bytes(), aligned as its
// type wants it.
using FieldColumns = std::span<const std::byte* const>;  // [fields]

// The field that says which actions are valid; the number of fields where none does.
std::size_t mask_field(const Fields& fields);

// Floats [first, first + width) of one field, whose values lie at `column`: of observation i to out + i * stride.
void encode_part(const Field& field, const std::byte* column, std::size_t n, std::size_t first, std::size_t width,
                 float* out, std::size_t stride);
// The floats of the fields of one role, of observation i to out + i * stride.
void encode(const Fields& fields, Role role, FieldColumns columns, std::size_t n, float* out, std::size_t stride);
// Those of the policy and of the critic, one after the other: [n, policy_width + critic_width].
void encode(const Fields& fields, FieldColumns columns, std::size_t n, float* out);

}  // namespace gipo
