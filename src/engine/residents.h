// Which resident prefix goes when cells are needed. Pure.
//
// A resident is a finished sequence kept because its tokens may begin the next prompt. It is let go in units, from its
// end: where others branched off (a fork) the common trunk before is one unit and the rest another, so leaves go before
// trunks. A unit's value is the tick of its last use plus a credit of one turnover of the whole pool for each use, less
// one turnover for side requests; the tick counts decoded tokens, so that the policy does not depend on speed. Least
// value goes first. When a sequence id is wanted instead of cells, whole residents compete, and each gets credit for
// the tokens that it would cost to compute again.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace caravan::engine {

// Others took the first `at` tokens of a sequence.
struct Fork {
  std::uint32_t at = 0;
  std::uint32_t uses = 0;
  std::uint64_t last_used = 0;  // tick
};

// A use at `at` is booked on the fork there, which is made if need be. At most `forks_max` are kept.
inline constexpr std::size_t forks_max = 64;
void note_fork(std::vector<Fork>& forks, std::uint32_t at, std::uint64_t tick);

struct ResidentView {
  std::uint32_t sequence = 0;
  std::uint32_t length = 0;
  std::uint32_t unshared_from = 0;  // cells before it are held by others too, so letting them go frees nothing
  std::uint32_t uses = 0;           // times the whole of it was continued
  std::uint64_t last_used = 0;
  std::span<const Fork> forks;
  bool can_trim = true;  // false: all or nothing (recurrent state)
  bool quotes =
      false;  // most of it stands in another resident too, elsewhere: a side request (a title, tags) about a chat
};

struct Eviction {
  std::uint32_t sequence = 0;
  std::uint32_t keep = 0;  // tokens that stay
};

// The least valuable unit of all residents; none when there is no resident. `cells_total` is one turnover.
// A resident whose cells are all shared costs nothing but its sequence id; for cells it is chosen only when no other is
// left.
enum class EvictFor { cells, sequence_id };
std::optional<Eviction> choose_eviction(std::span<const ResidentView> residents, std::uint32_t cells_total,
                                        EvictFor why);

}  // namespace caravan::engine
