// What the engine is asked and what it answers: plain values, free of libllama and of HTTP.
//
// A Request is submitted once (engine/engine.h); the engine then calls its Listener with Events, in order, on the
// engine thread: any number of Delta, one ChoiceEnd per choice, then exactly one RequestEnd or RequestFailed, which is
// the last. After a cancel nothing more is delivered but that last event (RequestFailed with ErrorCode::cancelled).
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "kv/tier.h"

namespace caravan::engine {

using Token = kv::Token;

// Defaults are llama-server's. Ranges are checked by `validate` in sampler.h, with the field's API name in the message.
struct SamplingParams {
  float temperature = 0.8F;  // 0: greedy
  std::int32_t top_k = 40;   // 0: off
  float top_p = 0.95F;       // 1: off
  float min_p = 0.05F;       // 0: off
  float typical_p = 1.0F;    // 1: off
  float repeat_penalty = 1.0F;
  float presence_penalty = 0.0F;
  float frequency_penalty = 0.0F;
  std::int32_t penalty_last_n = 64;  // tokens looked back at; 0: off, -1: the whole context
  std::int32_t mirostat = 0;         // 0: off, 1, 2
  float mirostat_tau = 5.0F;
  float mirostat_eta = 0.1F;
  std::vector<std::pair<Token, float>> logit_bias;  // -infinity bans a token
  std::optional<std::uint32_t> seed;                // none: drawn at random for each choice
  std::string grammar;                              // GBNF; empty: none. JSON modes arrive here as GBNF too.
  bool ignore_eos = false;
};

struct Request {
  std::string id;       // unique in this process; chosen by the caller
  std::string tenant;   // empty without API keys
  std::string session;  // empty: found by prefix
  std::vector<Token> prompt;
  SamplingParams sampling;
  std::optional<std::uint32_t> max_tokens;    // per choice; none: to the end of the context
  std::vector<std::string> stop;              // generation ends before the first of these; never part of the text
  std::uint32_t choices = 1;                  // `n`; the prompt is prefilled once for all of them
  std::optional<std::uint32_t> top_logprobs;  // set: a TokenLogprob with that many alternatives for each token
  bool cache_prompt = true;                   // false: compute everything, share nothing
  bool embedding = false;                     // answer with one Embedding instead of text
  TimePoint arrived = Clock::now();
};

struct TokenAlternative {
  Token token = 0;
  std::string bytes;  // the token's own bytes; may be a part of a UTF-8 character
  float logprob = 0;
};

struct TokenLogprob {
  TokenAlternative chosen;
  std::vector<TokenAlternative> top;  // most probable first
};

// Newly decoded text of one choice: whole UTF-8 characters, never a part of a stop string. `text` may be empty while
// `logprobs` is not (a token that ends inside a character) and the other way round.
struct Delta {
  std::uint32_t choice = 0;
  std::string text;
  std::vector<TokenLogprob> logprobs;
  std::uint32_t tokens = 0;  // tokens decoded since the last Delta of this choice
};

enum class FinishReason { stop, length };

struct ChoiceEnd {
  std::uint32_t choice = 0;
  FinishReason reason = FinishReason::stop;
  std::optional<std::string> stop;  // the stop string that matched
  std::uint32_t completion_tokens = 0;
};

// Why no more of the prompt was found in the cache.
enum class MissReason {
  none,         // all but the one token that must be evaluated was cached
  fresh,        // all that is known of the prompt's beginning was cached; what follows is new
  cold,         // nothing with this beginning is known
  diverged,     // the closest known prompt differs from token `at` on
  disabled,     // the request or the server switched the cache off
  unsupported,  // this model's state cannot be cut there (recurrent, or outside a sliding window)
};

// The name in the account and in metric labels.
const char* name_of(MissReason reason);

// Where a request's tokens came from; goes to the client as `caravan` and into the metrics.
struct Account {
  std::uint32_t prompt_tokens = 0;
  std::uint32_t completion_tokens = 0;  // of all choices
  // Prompt tokens that were not evaluated, by where they were found (kv::TierKind).
  std::array<std::uint32_t, kv::tier_kinds> cached{};
  std::uint32_t computed = 0;  // prompt tokens that were evaluated; cached_total() + computed == prompt_tokens
  MissReason miss = MissReason::cold;
  std::uint32_t miss_at = 0;       // first prompt token that was not cached
  std::uint32_t shared_after = 0;  // prompt tokens behind a divergence that the closest known prompt holds too
  std::uint32_t preemptions = 0;   // times the request made room for others and was continued later
  Duration queue{};                // submit -> admitted
  Duration match{};                // finding and sharing the prefix
  Duration restore{};              // waiting for blocks from below the device, and putting them there
  Duration prefill{};              // admitted -> first token, less match
  Duration decode{};               // first token -> last token

  [[nodiscard]] std::uint32_t cached_total() const { return std::accumulate(cached.begin(), cached.end(), 0U); }
  [[nodiscard]] std::uint32_t cached_in(kv::TierKind tier) const { return cached[static_cast<std::size_t>(tier)]; }
};

struct Embedding {
  std::vector<float> values;  // L2-normalised
};

struct RequestEnd {
  Account account;
};
struct RequestFailed {
  Error error;
};

using Event = std::variant<Delta, ChoiceEnd, Embedding, RequestEnd, RequestFailed>;

// Called on the engine thread; must return at once (post to your own thread) and must not throw.
using Listener = std::move_only_function<void(Event)>;

}  // namespace caravan::engine
