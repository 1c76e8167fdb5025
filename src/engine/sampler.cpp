#include "engine/sampler.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <limits>
#include <random>

#include <llama.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "engine/backends.h"
#include "engine/grammar_check.h"
#include "engine/model.h"

namespace caravan::engine {
namespace {

constexpr float minus_infinity = -std::numeric_limits<float>::infinity();

// Colder than this the logits' quotients would overflow, and the draw is the largest anyway.
constexpr float temperature_min = 1e-5F;
constexpr std::size_t biases_max = 4096;
constexpr double bias_max = 1e6;
// Up to this many, picking the largest out of the row is quicker than handing all of it to the chain.
constexpr std::size_t best_max = 1024;
// How many of the largest a greedy choice asks the grammar about before it asks about all.
constexpr std::size_t greedy_grammar_best = 256;
// Probabilities smaller than e^-80 of the largest are zero to a float soon after, and a logarithm of that is no number.
constexpr float log_range = 80.0F;
// An ambiguous grammar can need twice the time for each further character: it is left before it stops the engine.
constexpr auto grammar_step_max = std::chrono::seconds(1);
// OpenAI's stand-in for the logarithm of zero, which JSON cannot write.
constexpr double logprob_min = -9999.0;

Status check_range(const char* field, double value, double low, double high) {
  if (std::isfinite(value) && value >= low && value <= high) return {};
  return fail(ErrorCode::invalid_argument, "{} is {}; it must be {} to {}", field, value, low, high);
}

llama_sampler* parse_grammar(const Model& model, const std::string& grammar) {
  return llama_sampler_init_grammar(model.vocabulary(), grammar.c_str(), "root");
}

Status check_grammar_of(const Model& model, const std::string& grammar) {
  const auto is_one_token = [&](std::string_view text) {
    const auto tokens = model.tokenize(text, AddSpecial::no, ParseSpecial::yes);
    return tokens && tokens->size() == 1;
  };
  if (Status status = check_grammar(grammar, is_one_token); !status) return status;
  const ComplaintRecorder complaints;
  llama_sampler* parsed = parse_grammar(model, grammar);
  if (parsed == nullptr) {
    const std::string reason = complaints.first();
    return fail(ErrorCode::invalid_argument, "libllama does not take the grammar: {}",
                reason.empty() ? "it does not parse" : reason);
  }
  llama_sampler_free(parsed);
  return {};
}

llama_sampler* make_chain() {
  llama_sampler_chain_params params = llama_sampler_chain_default_params();
  params.no_perf = true;
  return llama_sampler_chain_init(params);
}

// NaN compares with nothing and would poison every sort after it; an infinite logit makes NaN of all probabilities.
float usable(float logit) { return std::isnan(logit) ? minus_infinity : std::min(logit, 1e30F); }

constexpr std::size_t lanes = 16;

// The largest logit; NaN never is. In lanes, so that the compiler can use the vector unit.
float largest(std::span<const float> logits) {
  std::array<float, lanes> best;
  best.fill(minus_infinity);
  std::size_t i = 0;
  for (; i + lanes <= logits.size(); i += lanes) {
    for (std::size_t lane = 0; lane < lanes; ++lane)
      best[lane] = logits[i + lane] > best[lane] ? logits[i + lane] : best[lane];
  }
  for (; i < logits.size(); ++i) best[0] = logits[i] > best[0] ? logits[i] : best[0];
  return *std::ranges::max_element(best);
}

// Larger logits first; of equals the one with the smaller id, as greedy decoding takes it.
bool better(const llama_token_data& a, const llama_token_data& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

}  // namespace

Status validate(const SamplingParams& params, const Model& model) {
  const struct {
    const char* field;
    double value, low, high;
  } ranges[] = {{"temperature", params.temperature, 0, 100},
                {"top_k", static_cast<double>(params.top_k), 0, std::numeric_limits<std::int32_t>::max()},
                {"top_p", params.top_p, 0, 1},
                {"min_p", params.min_p, 0, 1},
                {"typical_p", params.typical_p, 0, 1},
                {"repeat_penalty", params.repeat_penalty, 0.01, 100},
                {"presence_penalty", params.presence_penalty, -100, 100},
                {"frequency_penalty", params.frequency_penalty, -100, 100},
                {"repeat_last_n", static_cast<double>(params.penalty_last_n), -1, 1 << 20},
                {"mirostat", static_cast<double>(params.mirostat), 0, 2},
                {"mirostat_tau", params.mirostat_tau, 0, 100},
                {"mirostat_eta", params.mirostat_eta, 0, 1}};
  for (const auto& range : ranges) {
    if (Status status = check_range(range.field, range.value, range.low, range.high); !status) return status;
  }
  if (params.logit_bias.size() > biases_max) {
    return fail(ErrorCode::invalid_argument, "logit_bias has {} tokens; at most {}", params.logit_bias.size(),
                biases_max);
  }
  for (const auto& [token, bias] : params.logit_bias) {
    if (!model.valid(token)) {
      return fail(ErrorCode::invalid_argument, "logit_bias: {} is no token of this model, which has 0 to {}", token,
                  model.info().vocabulary - 1);
    }
    if (bias != minus_infinity && !(std::abs(bias) <= bias_max)) {
      return fail(ErrorCode::invalid_argument,
                  "logit_bias: the bias of token {} is {}; it must be -infinity or {} to {}", token, bias, -bias_max,
                  bias_max);
    }
  }
  return params.grammar.empty() ? Status{} : check_grammar_of(model, params.grammar);
}

void Sampler::Deleter::operator()(llama_sampler* sampler) const { llama_sampler_free(sampler); }
Sampler::Sampler(const Model& model) : model_(&model) {}
Sampler::~Sampler() = default;
Sampler::Sampler(Sampler&& other) noexcept = default;
Sampler& Sampler::operator=(Sampler&& other) noexcept = default;

Result<Sampler> Sampler::create(const Model& model, const SamplingParams& params, std::uint32_t choice) {
  const std::int32_t tokens = llama_vocab_n_tokens(model.vocabulary());
  Sampler sampler(model);
  sampler.is_adjusted_.resize(static_cast<std::size_t>(tokens));

  sampler.biases_ = params.logit_bias;
  if (params.ignore_eos) {
    for (Token token = 0; token < tokens; ++token) {
      if (model.ends_generation(token)) sampler.biases_.emplace_back(token, minus_infinity);
    }
  }
  if (params.penalty_last_n != 0 &&
      (params.repeat_penalty != 1.0F || params.presence_penalty != 0.0F || params.frequency_penalty != 0.0F)) {
    const std::int32_t last_n = params.penalty_last_n > 0
                                    ? params.penalty_last_n
                                    : std::max(1, static_cast<std::int32_t>(model.info().context_train));
    sampler.recent_max_ = static_cast<std::size_t>(last_n);
    sampler.penalties_.reset(llama_sampler_init_penalties(tokens, last_n, params.repeat_penalty,
                                                          params.frequency_penalty, params.presence_penalty));
  }
  if (!params.grammar.empty()) {
    const ComplaintRecorder complaints;
    sampler.grammar_.reset(parse_grammar(model, params.grammar));
    if (!sampler.grammar_) return fail(ErrorCode::invalid_argument, "the grammar does not parse");
  }

  sampler.greedy_ = params.temperature < temperature_min;
  const std::uint32_t seed = params.seed ? *params.seed + choice : std::random_device{}();
  sampler.chain_.reset(make_chain());
  const auto add = [&](llama_sampler* each) { llama_sampler_chain_add(sampler.chain_.get(), each); };
  if (sampler.greedy_) {
    sampler.best_ = 1;
    add(llama_sampler_init_greedy());
  } else if (params.mirostat == 1) {
    add(llama_sampler_init_temp(params.temperature));
    add(llama_sampler_init_mirostat(tokens, seed, params.mirostat_tau, params.mirostat_eta, 100));
    sampler.log_range_ = log_range * params.temperature;
  } else if (params.mirostat == 2) {
    add(llama_sampler_init_temp(params.temperature));
    add(llama_sampler_init_mirostat_v2(seed, params.mirostat_tau, params.mirostat_eta));
    sampler.log_range_ = log_range * params.temperature;
  } else {
    if (params.top_k > 0) {
      add(llama_sampler_init_top_k(params.top_k));
      if (const auto best = static_cast<std::size_t>(params.top_k); best <= best_max) sampler.best_ = best;
    }
    if (params.typical_p < 1.0F) {
      add(llama_sampler_init_typical(params.typical_p, 1));
      sampler.log_range_ = log_range;
    }
    if (params.top_p < 1.0F) add(llama_sampler_init_top_p(params.top_p, 1));
    if (params.min_p > 0.0F) add(llama_sampler_init_min_p(params.min_p, 1));
    add(llama_sampler_init_temp(params.temperature));
    add(llama_sampler_init_dist(seed));
  }
  return sampler;
}

// Bias and penalties touch few tokens; only those are computed, into adjusted_.
void Sampler::adjust(std::span<const float> logits) {
  for (const llama_token_data& each : adjusted_) is_adjusted_[static_cast<std::size_t>(each.id)] = 0;
  adjusted_.clear();
  const auto take = [&](Token token) {
    char& taken = is_adjusted_[static_cast<std::size_t>(token)];
    if (taken == 0) adjusted_.push_back({token, usable(logits[static_cast<std::size_t>(token)]), 0.0F});
    taken = 1;
  };
  for (const auto& [token, bias] : biases_) take(token);
  if (!biases_.empty()) {
    std::ranges::sort(adjusted_, {}, &llama_token_data::id);
    for (const auto& [token, bias] : biases_)
      std::ranges::lower_bound(adjusted_, token, {}, &llama_token_data::id)->logit += bias;
  }
  if (!penalties_) return;
  for (const Token token : recent_) take(token);
  llama_token_data_array all{adjusted_.data(), adjusted_.size(), -1, false};
  llama_sampler_apply(penalties_.get(), &all);
}

// The `count` most probable candidates, most probable first.
void Sampler::load_best(std::span<const float> logits, std::size_t count) {
  candidates_.clear();
  float least = minus_infinity;  // a candidate must be larger, once there are enough
  const auto consider = [&](const llama_token_data& candidate) {
    if (candidate.logit == minus_infinity) return;
    if (candidates_.size() == count) {
      if (!better(candidate, candidates_.front())) return;
      std::ranges::pop_heap(candidates_, better);
      candidates_.back() = candidate;
    } else {
      candidates_.push_back(candidate);
    }
    std::ranges::push_heap(candidates_, better);
    if (candidates_.size() == count) least = candidates_.front().logit;
  };
  for (const llama_token_data& each : adjusted_) consider(each);
  for (std::size_t begin = 0; begin < logits.size(); begin += lanes) {
    const std::size_t end = std::min(begin + lanes, logits.size());
    bool any = end - begin < lanes;
    if (!any) {
      int above = 0;
      for (std::size_t lane = 0; lane < lanes; ++lane) above |= static_cast<int>(logits[begin + lane] >= least);
      any = above != 0;
    }
    if (!any) continue;
    for (std::size_t i = begin; i < end; ++i) {
      if (is_adjusted_[i] == 0) consider({static_cast<Token>(i), usable(logits[i]), 0.0F});
    }
  }
  std::ranges::sort_heap(candidates_, better);
  sorted_ = true;
}

void Sampler::load_all(std::span<const float> logits) {
  candidates_.clear();
  candidates_.reserve(logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const float logit = usable(logits[i]);
    if (is_adjusted_[i] == 0 && logit != minus_infinity) candidates_.push_back({static_cast<Token>(i), logit, 0.0F});
  }
  for (const llama_token_data& each : adjusted_) {
    if (each.logit != minus_infinity) candidates_.push_back(each);
  }
  sorted_ = false;
}

// Draws among the candidates, none of which is impossible.
std::optional<Token> Sampler::choose() {
  if (candidates_.empty()) return std::nullopt;
  if (greedy_) return std::ranges::min_element(candidates_, better)->id;
  if (log_range_ > 0) {
    const float floor = std::ranges::min_element(candidates_, better)->logit - log_range_;
    std::erase_if(candidates_, [&](const llama_token_data& each) { return each.logit < floor; });
  }
  if (candidates_.size() == 1) return candidates_.front().id;
  llama_token_data_array all{candidates_.data(), candidates_.size(), -1, sorted_};
  llama_sampler_apply(chain_.get(), &all);
  return all.selected >= 0 ? all.data[all.selected].id : all.data[0].id;
}

std::optional<Token> Sampler::sample(std::span<const float> logits) {
  CHECK(logits.size() == is_adjusted_.size());
  if (grammar_over_) return std::nullopt;
  if (!biases_.empty() || penalties_) adjust(logits);
  if (best_ > 0) {
    load_best(logits, best_);
  } else {
    load_all(logits);
  }
  const std::optional<Token> chosen = choose();
  if (!grammar_ || !chosen || allowed(*chosen)) return chosen;
  return sample_by_grammar(logits);
}

// Most of the time the model itself follows the grammar: asking about one token is far cheaper than about all.
bool Sampler::allowed(Token token) {
  llama_token_data one{token, 1.0F, 0.0F};
  llama_token_data_array single{&one, 1, -1, false};
  llama_sampler_apply(grammar_.get(), &single);
  return one.logit != minus_infinity;
}

std::optional<Token> Sampler::sample_by_grammar(std::span<const float> logits) {
  const TimePoint begun = Clock::now();
  const auto keep_allowed = [&] {
    llama_token_data_array all{candidates_.data(), candidates_.size(), -1, false};
    if (!candidates_.empty()) llama_sampler_apply(grammar_.get(), &all);
    std::erase_if(candidates_, [](const llama_token_data& each) { return each.logit == minus_infinity; });
  };
  candidates_.clear();
  if (greedy_) {
    load_best(logits, greedy_grammar_best);
    keep_allowed();
  }
  if (candidates_.empty()) {
    load_all(logits);
    keep_allowed();
  }
  if (Clock::now() - begun > grammar_step_max) {
    log::warn("a grammar took more than {:.0f} s for one token; the answer ends there", seconds(grammar_step_max));
    grammar_over_ = true;
    return std::nullopt;
  }
  return choose();
}

void Sampler::note(Token token) {
  llama_sampler_accept(penalties_.get(), token);
  if (recent_.size() == recent_max_) recent_.pop_front();
  recent_.push_back(token);
}

void Sampler::accept(Token token) {
  CHECK(model_->valid(token));
  if (penalties_) note(token);
  llama_sampler_accept(chain_.get(), token);
  // libllama ends the process when a generation ends where the grammar does not; after the end nobody asks the grammar.
  if (!grammar_ || grammar_over_) return;
  if (model_->ends_generation(token)) {
    grammar_over_ = true;
    return;
  }
  const TimePoint begun = Clock::now();
  try {
    llama_sampler_accept(grammar_.get(), token);
  } catch (const std::exception& problem) {  // thrown for a token that the grammar does not allow
    log::debug("grammar: {}", problem.what());
    grammar_over_ = true;
  }
  if (Clock::now() - begun > grammar_step_max) {
    log::warn("a grammar took more than {:.0f} s for one token; the answer ends there", seconds(grammar_step_max));
    grammar_over_ = true;
  }
}

void Sampler::accept_prompt(std::span<const Token> prompt) {
  if (!penalties_) return;
  for (const Token token : prompt.last(std::min(prompt.size(), recent_max_))) {
    if (model_->valid(token)) note(token);
  }
}

TokenLogprob Sampler::logprob(const Model& model, std::span<const float> logits, Token chosen, std::uint32_t top) {
  CHECK(chosen >= 0 && static_cast<std::size_t>(chosen) < logits.size());
  const double most = usable(largest(logits));
  double sum = 0;
  for (const float logit : logits) {
    const float below = logit - static_cast<float>(most);
    if (below > -log_range) sum += std::exp(below);  // also leaves NaN out
  }
  const double log_sum = std::isfinite(most) ? most + std::log(sum) : 0;
  const auto alternative = [&](const llama_token_data& candidate) {
    return TokenAlternative{.token = candidate.id,
                            .bytes = model.piece(candidate.id, ParseSpecial::yes),
                            .logprob = static_cast<float>(std::max(logprob_min, candidate.logit - log_sum))};
  };
  TokenLogprob result{.chosen = alternative({chosen, usable(logits[static_cast<std::size_t>(chosen)]), 0.0F})};
  if (top == 0) return result;
  // As load_best, but tokens that cannot be are told too.
  std::vector<llama_token_data> best;
  const std::size_t count = std::min<std::size_t>(top, logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const llama_token_data candidate{static_cast<Token>(i), usable(logits[i]), 0.0F};
    if (best.size() == count) {
      if (!better(candidate, best.front())) continue;
      std::ranges::pop_heap(best, better);
      best.back() = candidate;
    } else {
      best.push_back(candidate);
    }
    std::ranges::push_heap(best, better);
  }
  std::ranges::sort_heap(best, better);
  for (const llama_token_data& each : best) result.top.push_back(alternative(each));
  return result;
}

}  // namespace caravan::engine
