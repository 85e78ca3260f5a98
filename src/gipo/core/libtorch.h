#pragma once

namespace gipo {

// What a user reads where something needs libtorch and the program has none.
inline constexpr const char* kAddTorch =
    "this program was built without libtorch: scripts/setup.sh --torch installs it, and a build with -DGIPO_TORCH=ON "
    "has it";

}  // namespace gipo
