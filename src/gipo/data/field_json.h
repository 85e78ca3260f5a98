#pragma once

#include <nlohmann/json_fwd.hpp>

#include "gipo/data/spec.h"

namespace gipo {

// A field as workers, the files of policies and Python describe it: name, dtype, shape, role, choices, bits, stack.
nlohmann::ordered_json field_to_json(const Field& field);
// Throws Error or nlohmann's exceptions where that is not a field.
Field field_from_json(const nlohmann::json& json);
Fields fields_from_json(const nlohmann::json& json);

}  // namespace gipo
