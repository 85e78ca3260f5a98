#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace gipo {

// The places of a run that remote actors may take, and how often each was taken: incarnations that are never given twice,
// however often learner and actors are started again. Kept in a file, RUN/actors.json, which is on disk before an actor is
// answered. Not for several threads at once.
class Places {
 public:
  struct Place {
    std::string name;  // of who has or had it
    std::uint64_t incarnation = 0;
  };

  // Reads the file where there is one. Throws Error where it is damaged or of a run with other places.
  Places(std::string path, std::size_t count);

  const std::string& run() const { return run_; }  // known by this, also after a restart
  std::size_t size() const { return places_.size(); }
  const Place& operator[](std::size_t i) const { return places_[i]; }
  std::uint64_t greatest() const;
  // Which free place `name` is to have: the one it had, then one that nobody had, then any. None: all are taken.
  std::optional<std::size_t> choose(const std::string& name, const std::vector<bool>& taken) const;
  // Its next incarnation, no less than `least`. Throws RunError where that cannot be written; nothing has changed then.
  std::uint64_t take(std::size_t place, const std::string& name, std::uint64_t least);

 private:
  void write(const std::vector<Place>& places) const;

  std::string path_, run_;
  std::vector<Place> places_;
};

}  // namespace gipo
