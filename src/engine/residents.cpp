#include "engine/residents.h"

#include <algorithm>

namespace caravan::engine {
namespace {

constexpr std::uint32_t uses_counted_max = 4;     // beyond this a unit is not protected any longer
constexpr std::uint64_t id_credit_per_token = 4;  // an id stays taken while about so many times its tokens go by

// A side request may be worth less than one turnover ago; values start there.
std::uint64_t value_of(std::uint64_t last_used, std::uint32_t uses, std::uint32_t cells_total) {
  return last_used + std::uint64_t{std::min(uses, uses_counted_max) + 1} * cells_total;
}

struct Unit {
  std::uint32_t begin = 0;
  std::uint64_t value = 0;
};

// The last unit of a resident: what lies behind its last fork.
Unit last_unit(const ResidentView& resident, std::uint32_t cells_total) {
  Unit unit{.begin = 0, .value = value_of(resident.last_used, resident.uses, cells_total)};
  if (resident.quotes && resident.uses == 0) unit.value -= cells_total;
  if (!resident.can_trim) return unit;
  const Fork* last = nullptr;
  for (const Fork& fork : resident.forks) {
    if (fork.at > 0 && fork.at < resident.length && (last == nullptr || fork.at > last->at)) last = &fork;
    // A fork at (or, after a trim, behind) the end is a use of the last unit itself.
    if (fork.at >= resident.length) unit.value = std::max(unit.value, value_of(fork.last_used, fork.uses, cells_total));
  }
  unit.begin = std::max(last == nullptr ? 0 : last->at, resident.unshared_from);
  return unit;
}

}  // namespace

void note_fork(std::vector<Fork>& forks, std::uint32_t at, std::uint64_t tick) {
  if (const auto found = std::ranges::find(forks, at, &Fork::at); found != forks.end()) {
    ++found->uses;
    found->last_used = tick;
    return;
  }
  if (forks.size() >= forks_max) forks.erase(std::ranges::min_element(forks, {}, &Fork::last_used));
  forks.push_back({.at = at, .uses = 1, .last_used = tick});
}

std::optional<Eviction> choose_eviction(std::span<const ResidentView> residents, std::uint32_t cells_total,
                                        EvictFor why) {
  std::optional<Eviction> chosen;
  std::uint64_t least = 0;
  bool chosen_frees = false;
  for (const ResidentView& resident : residents) {
    const bool frees = resident.unshared_from < resident.length;
    Unit unit = last_unit(resident, cells_total);
    if (why == EvictFor::sequence_id || !frees) unit.begin = 0;
    if (why == EvictFor::sequence_id) unit.value += id_credit_per_token * (resident.length - resident.unshared_from);
    // For cells, what frees some goes before what frees none; for an id it is the other way round.
    const bool wanted = frees == (why == EvictFor::cells);
    const bool better = !chosen || (wanted && !chosen_frees) || (wanted == chosen_frees && unit.value < least);
    if (!better) continue;
    chosen = Eviction{.sequence = resident.sequence, .keep = unit.begin};
    least = unit.value;
    chosen_frees = wanted;
  }
  return chosen;
}

}  // namespace caravan::engine
