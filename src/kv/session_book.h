// What is known of each conversation: its blocks, and when its next turn is to be expected. Pure.
//
// A session is named by its client, or found by its prefix: a prompt that goes on where another ended is its next turn.
// Two things follow from that. A session that has been idle for a while sends its blocks down to the store (they may
// then be evicted from the host, and outlive the process). And a session whose turns come at regular gaps has its
// blocks brought up again shortly before the next one: between mean - 2 and mean + 4 mean deviations of its gaps, both
// smoothed as TCP smooths its round trips (RFC 6298).
//
// Not thread-safe: the cache's lock is around it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "kv/block.h"

namespace caravan::kv {

using SessionId = std::uint64_t;

struct SessionBookOptions {
  Duration idle_after = std::chrono::seconds(2);
  Duration lead = std::chrono::seconds(1);         // before the earliest time at which a turn is expected
  std::size_t sessions_max = 10'000;               // more: the one that has been idle longest is forgotten
  std::size_t blocks_max = std::size_t{1} << 20U;  // of all sessions together, 32 bytes each
};

struct SessionView {
  std::string name;  // as the client called it; empty: found by prefix
  std::uint32_t turns = 0;
  std::size_t blocks = 0;
  bool running = false;
  Duration idle{};                    // since its last turn ended
  std::optional<Duration> next_turn;  // expected in so much time; none: not known
};

class SessionBook {
 public:
  struct Chain {
    BlockId namespace_id;
    std::vector<BlockId> blocks;
  };

  explicit SessionBook(SessionBookOptions options) : options_(options) {}

  // A turn begins whose prompt has these whole blocks. `name` may be empty; tenants never meet.
  SessionId begin(std::string_view tenant, std::string_view name, std::span<const BlockId> prompt, TimePoint now);
  // It ended, with the answer's blocks behind the prompt's.
  void end(SessionId session, const BlockId& namespace_id, std::span<const BlockId> chain, TimePoint now);

  // The chains of sessions that are idle now and were not taken since their last turn.
  std::vector<Chain> take_idle(TimePoint now);
  // The chains of sessions whose next turn is near; each once a turn.
  std::vector<Chain> take_expected(TimePoint now);

  struct Forecasts {
    std::uint64_t met = 0;     // expected turns that came
    std::uint64_t missed = 0;  // that did not come in their time
  };
  [[nodiscard]] Forecasts forecasts() const { return forecasts_; }
  [[nodiscard]] std::vector<SessionView> list(TimePoint now, std::size_t most) const;
  [[nodiscard]] std::size_t size() const { return sessions_.size(); }
  [[nodiscard]] std::size_t bytes() const;

 private:
  struct Session {
    std::string key;  // tenant and name; empty: found by prefix
    std::string name;
    std::string tenant;
    Chain chain;
    std::uint32_t turns = 0;
    std::uint32_t running = 0;
    std::optional<TimePoint> ended;
    bool expected = false;  // was taken as expected; the turn has not come yet
    std::uint32_t gaps = 0;
    double gap_mean = 0;  // seconds
    double gap_deviation = 0;
    std::list<SessionId>::iterator order;  // least recently ended first
    std::optional<TimePoint> idle_at;      // its places in the three schedules
    std::optional<TimePoint> expected_at;
    std::optional<TimePoint> missed_at;
  };
  using Schedule = std::set<std::pair<TimePoint, SessionId>>;

  void unschedule(SessionId id, Session& session);

  [[nodiscard]] std::optional<SessionId> find(std::string_view tenant, std::span<const BlockId> prompt) const;
  void index(SessionId id, const Session& session);
  void unindex(SessionId id, const Session& session);
  static void note_gap(Session& session, double gap);
  [[nodiscard]] std::optional<std::pair<TimePoint, TimePoint>> window(const Session& session) const;
  void forget(SessionId id);
  void trim();

  SessionBookOptions options_;
  SessionId last_ = 0;
  std::unordered_map<SessionId, Session> sessions_;
  std::unordered_map<std::string, SessionId> by_key_;
  // By the last block of those found by prefix. Where several end in the same block nobody can tell them apart: 0.
  std::unordered_map<BlockId, SessionId, BlockIdHash> by_tip_;
  std::list<SessionId> order_;
  Schedule idle_;
  Schedule expected_;
  Schedule missed_;
  std::size_t blocks_ = 0;
  Forecasts forecasts_;
};

}  // namespace caravan::kv
