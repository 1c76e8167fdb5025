// The engine's bookkeeping of one request and of one sequence. Owned by the engine thread.
//
//                        (from either of the first two through `restoring`, while blocks come from the tiers)
//   idle ----------> waiting_for_prefix ----> prefilling ----> decoding ----> resident (or idle)
//     \_________________________________________^   |              |             |
//   a resident whose whole content begins a prompt  +--------------+             |
//   goes on as that prompt's sequence               preempted: back to the queue |
//                                                                 evicted: idle <+
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "engine/engine.h"
#include "engine/request.h"
#include "engine/residents.h"
#include "engine/sampler.h"
#include "engine/text_stream.h"
#include "kv/cache.h"

namespace caravan::engine {

// A submitted request; its choices point to it.
struct Job {
  Request request;
  Listener listener;
  Account account;
  std::uint32_t choices_open = 0;
  kv::SessionId session = 0;
  bool admitted = false;  // its first choice was; the account's queue and cached figures are set
  bool ended = false;     // the last event was delivered
  TimePoint admitted_at{};
  TimePoint prefill_at{};  // the prefix was found and shared; what remains is computed from here
  std::optional<TimePoint> first_token_at;
};

// One of the `n` answers to a request.
struct Choice {
  std::shared_ptr<Job> job;
  std::uint32_t index = 0;
  Sampler sampler;
  TextStream text;
  std::vector<Token> tokens;  // prompt and generated tokens; moved into the sequence while it runs
  std::uint32_t generated = 0;
  std::uint32_t failures = 0;  // decodes that failed with it in the batch
  std::optional<TimePoint> last_token_at;
};

// A place in libllama's memory, by sequence id.
struct Sequence {
  std::uint32_t id = 0;
  SequenceState state = SequenceState::idle;
  // Of the tokens, the first KvPool::length(id) are in memory. Running: prompt and generated. Resident: what is kept.
  std::vector<Token> tokens;
  std::string tenant;  // who may share it, when tenants are isolated
  std::string session;
  // Tokens from here on were decoded with others in front of them than now (context shift): their KV is not what a
  // fresh computation of `tokens` gives, so nobody may share it.
  std::optional<std::uint32_t> exact_below;

  // Tiers.
  std::vector<kv::BlockId> chain;        // ids of the whole blocks of `tokens`, as far as anybody asked
  std::uint32_t captured = 0;            // blocks in front that were offered to the tiers
  std::uint32_t checkpoint_at = 0;       // tokens before the last checkpoint that was
  std::shared_ptr<kv::Fetch> fetch;      // restoring
  Match match;                           // what the device had, for the account
  std::vector<kv::Fetch::Piece> pieces;  // taken and not yet put: between streams all go in together
  TimePoint restore_begun{};
  std::array<std::uint32_t, kv::tier_kinds> restored{};  // tokens

  // Running.
  std::unique_ptr<Choice> choice;
  std::uint64_t admission = 0;  // order of admission; also tells a source from a later occupant of its id
  std::uint32_t prompt_tokens = 0;
  std::uint32_t cached_tokens = 0;
  struct Source {
    std::uint32_t sequence = 0;
    std::uint64_t admission = 0;
    std::uint32_t length = 0;
  };
  std::optional<Source> source;  // waiting_for_prefix: whose beginning it takes once that is decoded

  // Resident (and kept while running, for the time after).
  std::vector<Fork> forks;
  std::uint32_t uses = 0;
  bool quotes = false;          // most of its prompt stands elsewhere in another sequence
  std::uint64_t last_used = 0;  // tick
};

}  // namespace caravan::engine
