#include "kv/session_book.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"

namespace caravan::kv {
namespace {

constexpr std::uint32_t gaps_needed = 2;     // before a forecast is made
constexpr double deviation_least = 0.25;     // seconds; nobody is a metronome
constexpr double gap_most = 3600;            // later than this is another conversation's rhythm
constexpr std::size_t sessions_bytes = 400;  // a session's own, its indexes and strings, about

Duration from_seconds(double value) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(value));
}

}  // namespace

SessionId SessionBook::begin(std::string_view tenant, std::string_view name, std::span<const BlockId> prompt,
                             TimePoint now) {
  std::string key;
  if (!name.empty()) key = std::string(tenant) + '\0' + std::string(name);
  std::optional<SessionId> found;
  if (!key.empty()) {
    if (const auto named = by_key_.find(key); named != by_key_.end()) found = named->second;
  } else {
    found = find(tenant, prompt);
  }
  if (!found) {
    found = ++last_;
    Session& session = sessions_[*found];
    session.key = key;
    session.name = name;
    session.tenant = tenant;
    if (!key.empty()) by_key_[key] = *found;
    session.order = order_.insert(order_.end(), *found);
  }
  Session& session = sessions_.at(*found);
  if (session.running++ == 0 && session.ended) {
    note_gap(session, seconds(now - *session.ended));
    if (session.expected) ++forecasts_.met;
  }
  session.expected = false;
  unschedule(*found, session);
  ++session.turns;
  return *found;
}

void SessionBook::end(SessionId id, const BlockId& namespace_id, std::span<const BlockId> chain, TimePoint now) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return;  // forgotten meanwhile
  Session& session = found->second;
  if (session.running > 0) --session.running;
  unindex(id, session);
  blocks_ -= session.chain.blocks.size();
  session.chain.namespace_id = namespace_id;
  session.chain.blocks.assign(chain.begin(), chain.end());
  blocks_ += session.chain.blocks.size();
  index(id, session);
  session.ended = now;
  order_.splice(order_.end(), order_, session.order);
  if (session.running > 0) return;
  unschedule(id, session);
  session.idle_at = now + options_.idle_after;
  idle_.emplace(*session.idle_at, id);
  if (const auto expected = window(session)) {
    session.expected_at = std::max(now, expected->first - options_.lead);
    session.missed_at = expected->second;
    expected_.emplace(*session.expected_at, id);
    missed_.emplace(*session.missed_at, id);
  }
  trim();
}

std::vector<SessionBook::Chain> SessionBook::take_idle(TimePoint now) {
  std::vector<Chain> chains;
  while (!idle_.empty() && idle_.begin()->first <= now) {
    Session& session = sessions_.at(idle_.begin()->second);
    idle_.erase(idle_.begin());
    session.idle_at.reset();
    chains.push_back(session.chain);
  }
  return chains;
}

std::vector<SessionBook::Chain> SessionBook::take_expected(TimePoint now) {
  while (!missed_.empty() && missed_.begin()->first <= now) {
    Session& session = sessions_.at(missed_.begin()->second);
    missed_.erase(missed_.begin());
    session.missed_at.reset();
    if (std::exchange(session.expected, false)) ++forecasts_.missed;
  }
  std::vector<Chain> chains;
  while (!expected_.empty() && expected_.begin()->first <= now) {
    Session& session = sessions_.at(expected_.begin()->second);
    expected_.erase(expected_.begin());
    session.expected_at.reset();
    session.expected = true;
    chains.push_back(session.chain);
  }
  return chains;
}

void SessionBook::unschedule(SessionId id, Session& session) {
  const auto leave = [&](Schedule& schedule, std::optional<TimePoint>& at) {
    if (at) schedule.erase({*at, id});
    at.reset();
  };
  leave(idle_, session.idle_at);
  leave(expected_, session.expected_at);
  leave(missed_, session.missed_at);
}

std::vector<SessionView> SessionBook::list(TimePoint now, std::size_t most) const {
  std::vector<SessionView> views;
  for (auto id = order_.rbegin(); id != order_.rend() && views.size() < most; ++id) {
    const Session& session = sessions_.at(*id);
    SessionView& view = views.emplace_back();
    view.name = session.name;
    view.turns = session.turns;
    view.blocks = session.chain.blocks.size();
    view.running = session.running > 0;
    if (session.ended && !view.running) {
      view.idle = now - *session.ended;
      const TimePoint next = *session.ended + from_seconds(session.gap_mean);
      if (window(session) && next > now) view.next_turn = next - now;
    }
  }
  return views;
}

std::size_t SessionBook::bytes() const { return blocks_ * sizeof(BlockId) + sessions_.size() * sessions_bytes; }

std::optional<SessionId> SessionBook::find(std::string_view tenant, std::span<const BlockId> prompt) const {
  for (std::size_t i = prompt.size(); i > 0; --i) {
    const auto found = by_tip_.find(prompt[i - 1]);
    if (found == by_tip_.end() || found->second == 0) continue;
    const Session& session = sessions_.at(found->second);
    // While it runs, the same beginning belongs to another user; so it does where tenants share no blocks.
    if (session.tenant == tenant && session.key.empty() && session.running == 0) return found->second;
  }
  return std::nullopt;
}

void SessionBook::index(SessionId id, const Session& session) {
  if (!session.key.empty() || session.chain.blocks.empty()) return;
  const auto [tip, is_new] = by_tip_.try_emplace(session.chain.blocks.back(), id);
  if (!is_new && tip->second != id) tip->second = 0;
}

void SessionBook::unindex(SessionId id, const Session& session) {
  if (session.chain.blocks.empty()) return;
  const auto found = by_tip_.find(session.chain.blocks.back());
  if (found != by_tip_.end() && (found->second == id || found->second == 0)) by_tip_.erase(found);
}

void SessionBook::note_gap(Session& session, double gap) {
  if (gap > gap_most) return;
  if (session.gaps++ == 0) {
    session.gap_mean = gap;
    session.gap_deviation = gap / 2;
    return;
  }
  session.gap_deviation = 0.75 * session.gap_deviation + 0.25 * std::abs(gap - session.gap_mean);
  session.gap_mean = 0.875 * session.gap_mean + 0.125 * gap;
}

std::optional<std::pair<TimePoint, TimePoint>> SessionBook::window(const Session& session) const {
  if (session.gaps < gaps_needed || !session.ended) return std::nullopt;
  const double deviation = std::max(deviation_least, session.gap_deviation);
  return std::pair(*session.ended + from_seconds(std::max(0.0, session.gap_mean - 2 * deviation)),
                   *session.ended + from_seconds(session.gap_mean + 4 * deviation));
}

void SessionBook::forget(SessionId id) {
  const auto found = sessions_.find(id);
  CHECK(found != sessions_.end());
  Session& session = found->second;
  if (session.expected) ++forecasts_.missed;
  unindex(id, session);
  if (!session.key.empty()) by_key_.erase(session.key);
  unschedule(id, session);
  blocks_ -= session.chain.blocks.size();
  order_.erase(session.order);
  sessions_.erase(found);
}

void SessionBook::trim() {
  while (sessions_.size() > options_.sessions_max || blocks_ > options_.blocks_max) {
    const auto oldest = std::ranges::find_if(order_, [&](SessionId id) { return sessions_.at(id).running == 0; });
    if (oldest == order_.end()) return;
    forget(*oldest);
  }
}

}  // namespace caravan::kv
