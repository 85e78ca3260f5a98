#include "gipo/train/actor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "gipo/core/error.h"
#include "gipo/core/finite.h"
#include "gipo/core/stop.h"
#include "gipo/io/bytes.h"
#include "gipo/objective/advantage.h"

namespace gipo {

namespace {

Columns context_columns(const TransitionSpec& spec) {
  Columns all = columns(spec);
  all.resize(spec.observation.size());
  return all;
}

// What networks see of it, where that is more than is kept.
Columns stacked_columns(const TransitionSpec& spec) {
  Columns all = columns(spec, Frames::kAll);
  all.resize(spec.stacked() ? spec.observation.size() : 0);
  return all;
}

RowCounts rows_of_contexts(const ActorSpec& spec) { return {0, spec.envs * spec.transition.context(), 0}; }

PolicyRoom room_of(const ActorSpec& spec) {
  PolicyRoom room{std::max(spec.envs, spec.segment_length + 1), 0, true, spec.device};
  room.joined = spec.joined;
  return room;
}

constexpr std::size_t kMostSpare = 2;  // segments kept for each environment: a steady loop needs no more

}  // namespace

Actor::Actor(ActorSpec spec, const Stop* stop, std::vector<std::unique_ptr<Env>> envs)
    : spec_(std::move(spec)),
      policy_(make_policy<float>(spec_.model, room_of(spec_))),
      observer_(spec_.transition.observation, spec_.envs),
      env_action_(spec_.envs * spec_.env.action.dims()),
      columns_(spec_.model.fields.size()),
      reward_(spec_.segment_length),
      state_(spec_.envs * spec_.transition.state_size),
      next_state_(state_.size()),
      recent_state_(state_.size() * spec_.transition.context()),
      recent_(context_columns(spec_.transition), rows_of_contexts(spec_)),
      contexts_(context_columns(spec_.transition), rows_of_contexts(spec_)),
      stacked_(stacked_columns(spec_.transition), {0, spec_.segment_length + 1 + spec_.transition.context(), 0}) {
  std::size_t number = spec_.first_env;
  const bool noise_lasts = spec_.model.options.noise_correlation > 0 && spec_.model.distribution.extra_parameters() > 0;
  if (envs.empty()) {
    envs = make_envs(spec_.env, spec_.env_settings, spec_.env_options,
                     {spec_.envs, spec_.workers, !in_groups(), stop, number});
  }
  for (std::unique_ptr<Env>& env : envs) {
    slots_.push_back({std::move(env), RandomStream::derive(spec_.own_seed(), "action", number++),
                      Segment(spec_.segment_length, spec_.transition)});
    if (noise_lasts) slots_.back().noise.resize(spec_.env.action.dims());
    begin_noise(slots_.back());
    reset(slots_.back(), true);
  }
  GIPO_CHECK(spec_.first_episode.empty() || spec_.first_episode.size() == slots_.size());
  for (std::size_t i = 0; i < spec_.first_episode.size(); ++i) slots_[i].episode_number = spec_.first_episode[i];
  if (spec_.env.saves_state) look();
}

void Actor::look() {
  looked_ = true;
  for (std::size_t i = 0; i < slots_.size(); ++i) look_at_start(i);
}

void Actor::reset(Slot& slot, bool first) {
  if (!in_groups() && !first) return slot.env->reset();
  const std::uint64_t seed = derive_seed(spec_.own_seed(), "env", number_of(slot));
  const auto group = static_cast<std::uint64_t>(slot.group.number);
  slot.env->reset(in_groups() ? derive_seed(seed, "group", group) : seed);
}

std::size_t Actor::number_of(const Slot& slot) const {
  return spec_.first_env + static_cast<std::size_t>(&slot - slots_.data());
}

void Actor::step(const Weights& weights, std::int64_t env_steps) {
  begin_step(weights);
  finish_step(weights, env_steps);
}

void Actor::begin_step(const Weights& weights) {
  if (reported_) reuse_report();
  if (!looked_) look();
  choose_actions(weights);
}

void Actor::finish_step(const Weights& weights, std::int64_t env_steps) {
  try {
    for (std::size_t i = 0; i < slots_.size(); ++i) step_slot(i, weights, env_steps);
    // After all were told to begin: environments in other processes do so at the same time.
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      if (std::exchange(slots_[i].begun, false)) look_at_start(i);
    }
  } catch (const Interrupted&) {
    close_ended(weights);  // each episode that is in the log has its segments in the replay
    throw;
  }
  close_ended(weights);
}

// After all have stepped: closing uses the same inference workspace.
void Actor::close_ended(const Weights& weights) {
  for (Slot& slot : slots_) {
    const Segment& s = slot.open;
    if (s.length == spec_.segment_length || s.terminated || s.truncated) close(slot, weights);
  }
}

// All actions first: environments in other processes work at the same time.
void Actor::choose_actions(const Weights& weights) {
  const std::size_t dims = spec_.env.action.dims();
  choices_.clear();
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    Segment& s = slot.open;
    if (const std::uint8_t* mask = observer_.mask(i); mask && !any_valid(spec_.model.distribution, mask)) {
      throw RunError(fmt::format("environment {} ({}): its mask leaves no valid action at step {} of episode {}",
                                 number_of(slot), spec_.env.id, slot.episode_length + 1, slot.episode_number));
    }
    if (s.length == 0) begin_segment(i);
    const auto row = [&](std::span<float> values) { return values.subspan(s.length * dims, dims); };
    choices_.push_back({&slot.action_random, row(s.action()), row(s.log_prob()),
                        LastingNoise{slot.noise, spec_.model.options.noise_correlation}});
  }
  policy_->see(parameters_of(weights), {observer_.columns(), slots_.size(), state_.data()});
  policy_->forward(slots_.size());
  policy_->choose(choices_);
  policy_->next_state(next_state_.data());
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const std::span<double> env_action(env_action_.data() + i * dims, dims);
    to_env_action(spec_.model, choices_[i].action, env_action);
    slots_[i].env->begin_step(env_action);
  }
}

void Actor::step_slot(std::size_t i, const Weights& weights, std::int64_t env_steps) {
  Slot& slot = slots_[i];
  Segment& s = slot.open;
  const std::size_t dims = spec_.env.action.dims(), t = s.length;
  if (t == 0) s.first_env_step = static_cast<double>(env_steps);
  const StepResult result = slot.env->step({env_action_.data() + i * dims, dims});
  ++report_.steps;

  keep_observation(s, t, i);
  remember(i);
  observer_.observe(*slot.env, i);
  const auto reward = static_cast<float>(result.reward * spec_.env_settings.reward_scale);
  if (const Fault fault = find_fault(result, reward, observer_.finite(i))) return drop_segment(i, fault);
  keep_observation(s, t + 1, i);
  s.reward()[t] = reward;
  if (spec_.env_settings.normalise_rewards) {
    slot.discounted = spec_.advantage.gamma * slot.discounted + static_cast<double>(reward);
    s.discounted[t] = static_cast<float>(slot.discounted);
  }
  s.version()[t] = weights.version;
  s.terminated = result.terminated;
  s.truncated = result.truncated;
  s.length = t + 1;

  slot.episode_return += result.reward;
  slot.success.add(result);
  ++slot.episode_length;
  if (!result.terminated && !result.truncated) return;
  report_.episodes.push_back({number_of(slot), slot.episode_number++, slot.episode_return, slot.episode_length,
                              env_steps + static_cast<std::int64_t>(spec_.envs_of_run), weights.version,
                              result.terminated, slot.success});
  if (in_groups()) {
    slot.group.returns.push_back(slot.episode_return * spec_.env_settings.reward_scale);
    if (whole(slot.group)) ++slot.group.number;
  }
  begin_episode(i);
  slot.begun = true;
}

void Actor::look_at_start(std::size_t i) {
  observer_.observe(*slots_[i].env, i);
  if (!observer_.finite(i)) drop_segment(i, kBadStart);
}

void Actor::keep_observation(Segment& s, std::size_t row, std::size_t i) {
  for (std::size_t f = 0; f < observer_.fields(); ++f) {
    const std::size_t size = s.table().row_bytes(f);
    std::memcpy(s.table().row(f, row), observer_.newest(f, i, size).data(), size);
    if (spec_.transition.observation[f].stack > 1) check_frames(s, row, f, i);
  }
}

// What the replay will make of the frames that are kept.
void Actor::check_frames(const Segment& s, std::size_t row, std::size_t f, std::size_t i) const {
  const std::span<const std::byte> now = observer_.field(f, i);
  const std::size_t size = s.table().row_bytes(f);
  const auto frames = static_cast<std::size_t>(spec_.transition.observation[f].stack);
  const bool first = slots_[i].recent == 0 && row == 0;  // of the episode
  for (std::size_t back = 1; back < frames; ++back) {
    if (back > row && !first) break;
    const std::byte* const before = s.table().row(f, first ? row : row - back);
    if (std::memcmp(now.data() + (frames - 1 - back) * size, before, size) == 0) continue;
    throw RunError(
        fmt::format("environment {} ({}): env.frame_stack = {}, but the frames of {} at step {} of episode {} are not "
                    "those that came "
                    "before, oldest first, with the first one repeated at the start of an episode",
                    number_of(slots_[i]), spec_.env.id, frames, spec_.transition.observation[f].name,
                    slots_[i].episode_length, slots_[i].episode_number));
  }
}

void Actor::begin_segment(std::size_t i) {
  Slot& slot = slots_[i];
  const std::size_t most = spec_.transition.context(), size = spec_.transition.state_size;
  slot.context = slot.recent;
  for (std::size_t f = 0; f < observer_.fields() && slot.recent > 0; ++f) {
    std::memcpy(contexts_.row(f, i * most), recent_.row(f, i * most), slot.recent * recent_.row_bytes(f));
  }
  if (size == 0) return;
  const std::size_t prepared = std::min(slot.recent, spec_.transition.burn_in);
  const float* before = prepared > 0 ? &recent_state_[(i * most + slot.recent - prepared) * size] : &state_[i * size];
  std::copy_n(before, size, slot.open.state().data());
}

void Actor::remember(std::size_t i) {
  Slot& slot = slots_[i];
  const std::size_t most = spec_.transition.context(), size = spec_.transition.state_size, first = i * most;
  if (most > 0) {
    const bool full = slot.recent == most;
    const std::size_t kept = full ? most - 1 : slot.recent;
    for (std::size_t f = 0; f < observer_.fields(); ++f) {
      const std::span<const std::byte> now = observer_.newest(f, i, recent_.row_bytes(f));
      if (full) std::memmove(recent_.row(f, first), recent_.row(f, first + 1), kept * now.size());
      std::memcpy(recent_.row(f, first + kept), now.data(), now.size());
    }
    const auto states = recent_state_.begin() + static_cast<std::ptrdiff_t>(first * size);
    if (full) std::copy_n(states + static_cast<std::ptrdiff_t>(size), kept * size, states);
    std::copy_n(&state_[i * size], size, states + static_cast<std::ptrdiff_t>(kept * size));
    slot.recent = kept + 1;
  }
  std::copy_n(next_state_.begin() + static_cast<std::ptrdiff_t>(i * size), size,
              state_.begin() + static_cast<std::ptrdiff_t>(i * size));
}

void Actor::begin_episode(std::size_t i) {
  Slot& slot = slots_[i];
  const std::size_t size = spec_.transition.state_size;
  std::fill_n(state_.begin() + static_cast<std::ptrdiff_t>(i * size), size, 0.0F);
  slot.recent = 0;
  slot.episode_return = slot.discounted = 0;
  slot.success = {};
  slot.episode_length = 0;
  begin_noise(slot);
  reset(slot);
}

void Actor::begin_noise(Slot& slot) {
  for (float& v : slot.noise) v = static_cast<float>(slot.action_random.normal());
}

void Actor::drop_segment(std::size_t i, Fault why) {
  Slot& slot = slots_[i];
  do {
    std::string text = fmt::format("environment {} ({}) gave {} ({}), at step {} of episode {}", number_of(slot),
                                   spec_.env.id, why.text, why.name, slot.episode_length + 1, slot.episode_number);
    if (why.name == kWorkerDied) text += ": " + slot.env->last_death();
    report_.rejections.add(why.name, text);
    if (why.name != kWorkerDied && ++slot.faults >= kMostFaults) {
      throw RunError(fmt::format("{}: {} times in a row without one whole segment", text, slot.faults));
    }
    // What just ended with the episode before is whole: only an open segment is dropped, or an open group. Another group
    // has another start: this one may be at fault.
    const bool open = in_groups() ? !whole(slot.group) : !slot.open.terminated && !slot.open.truncated;
    if (open) slot.open.clear(), slot.group.clear();
    ++slot.group.number;
    ++slot.episode_number;
    begin_episode(i);
    observer_.observe(*slot.env, i);
    why = kBadStart;
  } while (!observer_.finite(i));
}

void Actor::cut(const Weights& weights) {
  if (reported_) reuse_report();
  for (Slot& slot : slots_) {
    if (slot.open.length > 0) close(slot, weights);
  }
}

void Actor::close(Slot& slot, const Weights& weights) {
  Segment& s = slot.open;
  s.actor = number_of(slot);
  slot.faults = 0;
  s.incarnation = spec_.incarnation;
  s.sequence = slot.sequence++;
  s.env_step_stride = static_cast<double>(spec_.envs_of_run);
  const std::size_t first = static_cast<std::size_t>(&slot - slots_.data()) * spec_.transition.context();
  s.context = slot.context;
  for (std::size_t f = 0; f < observer_.fields() && s.context > 0; ++f) {
    std::memcpy(s.table().row(f, s.length + 1), contexts_.row(f, first), s.context * contexts_.row_bytes(f));
  }
  s.sum_observations();
  if (spec_.env_settings.normalise_rewards) s.discounted_sums.set({s.discounted.data(), s.length});
  if (spec_.advantage.mode == AdvantageMode::kStored) make_advantages(s, weights);
  if (!s.finite()) {
    report_.rejections.add(
        "segment_not_finite",
        fmt::format("a segment of environment {} held a log-prob or value that is not finite", s.actor));
  } else {
    if (spare_.empty()) spare_.emplace_back(spec_.segment_length, spec_.transition);
    if (in_groups()) {
      slot.group.add(std::move(s));
    } else {
      report_.segments.push_back(std::move(s));
    }
    s = std::move(spare_.back());
    spare_.pop_back();
  }
  s.clear();
  if (!in_groups()) return;
  // Not known yet, and saved: what was there before must not be seen.
  std::ranges::fill(s.advantage(), 0.0F);
  std::ranges::fill(s.target(), 0.0F);
  if (whole(slot.group)) finish_group(slot);
}

void Actor::finish_group(Slot& slot) {
  OpenGroup& group = slot.group;
  const bool flat = without_variance(group.returns), dropped = flat && spec_.advantage.filter_groups;
  report_.groups.add({1, flat ? 1U : 0U});
  if (!dropped) group.make_advantages(spec_.advantage);
  for (Segment& s : group.segments) {
    if (!dropped && s.finite()) {
      report_.segments.push_back(std::move(s));
    } else if (!dropped) {
      report_.rejections.add(
          "segment_not_finite",
          fmt::format("a segment of environment {} had an advantage or a return that is not finite", s.actor));
    }
  }
  group.clear();
}

void Actor::make_advantages(Segment& s, const Weights& weights) {
  const std::size_t rows = s.length + 1;
  const std::size_t prepared = std::min(s.context, spec_.transition.burn_in);
  locate_all(s, prepared);
  PolicyInput input{columns_, rows};
  const Sequence whole{0, rows, Sequence::kNone, rows, prepared};
  if (spec_.model.has_memory()) {
    input.state = s.state().data();
    input.sequences = {&whole, 1};
  }
  policy_->see(parameters_of(weights), input);
  std::copy_n(policy_->values(), rows, s.value.data());
  const AdvantageOptions& o = spec_.advantage;
  const RewardScale scale = reward_scale(s, weights);
  std::transform(s.reward().begin(), s.reward().begin() + static_cast<std::ptrdiff_t>(s.length), reward_.begin(),
                 [&](float r) { return scale.apply(r); });
  gae<float>({{reward_.data(), s.length}, {s.value.data(), s.length + 1}, s.terminated}, static_cast<float>(o.gamma),
             static_cast<float>(o.lambda), {s.advantage().data(), s.length}, {s.target().data(), s.length});
}

// Of a segment: where what networks see lies, first its steps and what follows, then the last rows of its context.
void Actor::locate_all(const Segment& s, std::size_t context) {
  if (!spec_.transition.stacked()) {
    GIPO_CHECK(context == s.context);
    return s.locate_observation(0, std::span<const std::byte*>(columns_));
  }
  for (std::size_t f = 0; f < columns_.size(); ++f) {
    columns_[f] = stacked_.row(f, 0);
    const std::ptrdiff_t frames = spec_.transition.observation[f].stack;
    const std::size_t size = s.table().row_bytes(f);
    for (std::size_t r = 0; r < s.length + 1 + context; ++r) {
      auto moment = static_cast<std::ptrdiff_t>(r);
      if (r > s.length) moment -= static_cast<std::ptrdiff_t>(s.length + 1 + context);
      std::byte* out = stacked_.row(f, r);
      for (std::ptrdiff_t frame = moment + 1 - frames; frame <= moment; ++frame, out += size) {
        std::memcpy(out, s.table().row(f, row_of(frame, s.length, s.context)), size);
      }
    }
  }
}

// The segment's own returns count too: at the start of a run there are no others.
RewardScale Actor::reward_scale(const Segment& s, const Weights& weights) {
  if (!spec_.env_settings.normalise_rewards) return {};
  returns_ = weights.returns;
  returns_.add(s.discounted_sums);
  return RewardScale(returns_);
}

const ActorReport& Actor::report() {
  if (reported_) reuse_report();
  reported_ = true;
  report_.actor = spec_.first_env;
  report_.incarnation = spec_.incarnation;
  report_.sequence = next_report_++;
  return report_;
}

void Actor::reuse_report() {
  reported_ = false;
  for (Segment& s : report_.segments) {
    if (spare_.size() < kMostSpare * slots_.size()) spare_.push_back(std::move(s));
  }
  report_.segments.clear();
  report_.episodes.clear();
  report_.rejections.clear();
  report_.groups = {};
  report_.steps = 0;
}

void Actor::leave() {
  for (const Slot& slot : slots_) slot.env->leave();
}

void Actor::save(ByteWriter& out) const {
  out.value(spec_.incarnation);
  out.array(std::span<const float>(observer_.plain()));
  for (const Slot& slot : slots_) {
    slot.env->save_state(out);
    slot.action_random.save(out);
    slot.open.save(out);
    out.value(slot.episode_return);
    out.value(slot.discounted);
    out.value(slot.episode_length);
    out.value(slot.episode_number);
    out.value(slot.sequence);
    out.value(slot.faults);
    if (in_groups()) slot.group.save(out);
    if (!slot.noise.empty()) out.array(slot.noise);
  }
  if (!state_.empty()) out.array(state_);
  if (spec_.transition.context() > 0) save_contexts(out);
}

void Actor::load(ByteReader& in) {
  spec_.incarnation = in.value<std::uint64_t>();
  in.array_into(observer_.plain());
  for (Slot& slot : slots_) {
    slot.env->load_state(in);
    slot.action_random.load(in);
    slot.open.load(in);
    slot.episode_return = in.value<double>();
    slot.discounted = in.value<double>();
    slot.episode_length = in.value<std::int64_t>();
    slot.episode_number = in.value<std::int64_t>();
    slot.sequence = in.value<std::uint64_t>();
    slot.faults = in.value<std::int64_t>();
    if (in_groups()) {
      const auto size = static_cast<std::size_t>(spec_.advantage.group_size);
      slot.group.load(in, size, spec_.segment_length, spec_.transition);
    }
    if (!slot.noise.empty()) in.array_into(std::span(slot.noise));
    if (!all_finite(slot.noise)) throw Error("saved actor: noise that is not finite");
    if (!can_go_on(slot)) throw Error("saved actor: an environment or its open segment cannot be gone on with");
  }
  if (!state_.empty()) in.array_into(std::span(state_));
  if (spec_.transition.context() > 0) load_contexts(in);
  if (!all_finite(state_) || !all_finite(recent_state_)) throw Error("saved actor: a state that is not finite");
}

void Actor::save_contexts(ByteWriter& out) const {
  const std::size_t fields = observer_.fields(), rows = slots_.size() * spec_.transition.context();
  for (const Slot& slot : slots_) {
    out.value<std::uint64_t>(slot.recent);
    out.value<std::uint64_t>(slot.context);
  }
  for (const Table* table : {&recent_, &contexts_}) {
    for (std::size_t f = 0; f < fields; ++f) out.append({table->row(f, 0), rows * table->row_bytes(f)});
  }
  out.array(recent_state_);
}

void Actor::load_contexts(ByteReader& in) {
  const std::size_t fields = observer_.fields(), most = spec_.transition.context(), rows = slots_.size() * most;
  for (Slot& slot : slots_) {
    const auto recent = in.value<std::uint64_t>(), context = in.value<std::uint64_t>();
    if (recent > most || context > most) throw Error("saved actor: more observations of before than are kept");
    slot.recent = static_cast<std::size_t>(recent);
    slot.context = static_cast<std::size_t>(context);
  }
  for (Table* table : {&recent_, &contexts_}) {
    for (std::size_t f = 0; f < fields; ++f) in.bytes_into({table->row(f, 0), rows * table->row_bytes(f)});
  }
  in.array_into(std::span(recent_state_));
}

// An episode runs, the segment has room, and what it holds may reach the learner.
bool Actor::can_go_on(const Slot& slot) const {
  const Segment& s = slot.open;
  const auto count = [](std::int64_t v) { return v >= 0 && v <= std::int64_t{1} << 62; };
  return slot.env->running() && s.length < spec_.segment_length && !s.terminated && !s.truncated &&
         possible_choices(spec_.model.distribution.choices, {s.action().data(), s.length * spec_.env.action.dims()}) &&
         std::isfinite(slot.discounted) && count(slot.episode_length) && count(slot.episode_number) &&
         count(slot.faults) && slot.sequence <= std::uint64_t{1} << 62;
}

}  // namespace gipo
