#pragma once

#include <string>
#include <vector>

#include "gipo/plan/plan.h"
#include "gipo/policy/weights.h"
#include "gipo/population/card_run.h"

namespace gipo::population {

// Throws Error, naming the option, its value and who can do it, where a run cannot be one of a population on a card.
void check_plan(const Plan& plan);

// A plan that was checked, as a card sees it. `updates`: about how many one launch makes, for the room of what it reports.
RunSpec card_spec(const Plan& plan, std::int64_t updates);

// The same run, with the arrays in shared memory that have room there, those that are read most often first.
RunSpec spread(RunSpec spec, int threads, std::size_t room);

// Bytes of shared memory that a run needs with blocks of so many threads, and of the card's memory.
std::size_t shared_bytes(const RunSpec& spec, int threads);
std::size_t memory_bytes(const RunSpec& spec);

// Parameters of a network in the order of files, as the card has them, and back.
void to_card(const Net& net, std::span<const float> parameters, float* card);
AlignedVector<float> from_card(const Net& net, const float* card);

// The first state of a run into the head of its memory (layout.h).
void write_head(const Plan& plan, const RunSpec& spec, char* head);
// The weights that it has come to, which are published.
Weights weights_of(const Plan& plan, const RunSpec& spec, const char* head);

}  // namespace gipo::population
