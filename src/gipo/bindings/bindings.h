#pragma once

#include <nanobind/nanobind.h>

// The module gipo._core: the library's functions on arrays, as the package python/gipo calls them. Its users see the
// package, which checks shapes, converts arrays and documents; nothing here prints.
namespace gipo {
struct SavedPolicy;
}

namespace gipo::bindings {

void add_objective(nanobind::module_& module);  // surrogates, advantages, diagnostics, certificate
void add_studies(nanobind::module_& module);    // aggregates over runs, the exact grid study
void add_fields(nanobind::module_& module);     // observations in fields to rows of floats
void add_policy(nanobind::module_& module);     // a trained policy
void add_envs(nanobind::module_& module);       // the tasks, for loops of others
void add_training(nanobind::module_& module);   // train and resume
void add_episodes(nanobind::module_& module);   // the episodes of an evaluation
void add_vla(nanobind::module_& module);        // the large model

nanobind::object acting_policy(SavedPolicy policy);  // as Python knows it

}  // namespace gipo::bindings
