#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include <llama.h>

#include "base/check.h"
#include "engine/backends.h"
#include "engine/model.h"

namespace caravan::engine {
namespace {

constexpr std::size_t grammar_bytes_max = std::size_t{256} << 10;
constexpr float minus_infinity = -std::numeric_limits<float>::infinity();

// Nesting beyond this would recurse too deep in libllama's grammar parser.
constexpr int grammar_depth_max = 200;

Status check_range(const char* field, double value, double low, double high) {
  if (std::isfinite(value) && value >= low && value <= high) return {};
  return fail(ErrorCode::invalid_argument, "{} is {}; it must be {} to {}", field, value, low, high);
}

Status check_grammar(const std::string& grammar, const Model& model) {
  if (grammar.size() > grammar_bytes_max) {
    return fail(ErrorCode::invalid_argument, "the grammar has {} bytes; at most {}", grammar.size(), grammar_bytes_max);
  }
  int depth = 0;
  for (const char each : grammar) {
    depth += each == '(' ? 1 : each == ')' ? -1 : 0;
    if (depth > grammar_depth_max) {
      return fail(ErrorCode::invalid_argument, "the grammar nests deeper than {} groups", grammar_depth_max);
    }
  }
  const ComplaintRecorder complaints;
  llama_sampler* parsed = llama_sampler_init_grammar(model.vocabulary(), grammar.c_str(), "root");
  if (parsed == nullptr) {
    const std::string reason = complaints.first();
    return fail(ErrorCode::invalid_argument, "the grammar is not valid GBNF with a rule `root`: {}",
                reason.empty() ? "it does not parse" : reason);
  }
  llama_sampler_free(parsed);
  return {};
}

void add(llama_sampler* chain, llama_sampler* sampler) { llama_sampler_chain_add(chain, sampler); }

llama_sampler* make_chain() {
  llama_sampler_chain_params params = llama_sampler_chain_default_params();
  params.no_perf = true;
  return llama_sampler_chain_init(params);
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
  for (const auto& [token, bias] : params.logit_bias) {
    if (!model.valid(token)) {
      return fail(ErrorCode::invalid_argument, "logit_bias: {} is no token of this model, which has 0 to {}", token,
                  model.info().vocabulary - 1);
    }
    if (std::isnan(bias) || bias == -minus_infinity) {
      return fail(ErrorCode::invalid_argument, "logit_bias: the bias of token {} is no number", token);
    }
  }
  return params.grammar.empty() ? Status{} : check_grammar(params.grammar, model);
}

void Sampler::Deleter::operator()(llama_sampler* sampler) const { llama_sampler_free(sampler); }
Sampler::~Sampler() = default;
Sampler::Sampler(Sampler&& other) noexcept = default;
Sampler& Sampler::operator=(Sampler&& other) noexcept = default;

Result<Sampler> Sampler::create(const Model& model, const SamplingParams& params, std::uint32_t choice) {
  const llama_vocab* vocabulary = model.vocabulary();
  const std::int32_t tokens = llama_vocab_n_tokens(vocabulary);
  Sampler sampler;
  sampler.candidates_.resize(static_cast<std::size_t>(tokens));

  std::vector<llama_logit_bias> biases;
  for (const auto& [token, bias] : params.logit_bias) biases.push_back({token, bias});
  if (params.ignore_eos) {
    for (Token token = 0; token < tokens; ++token) {
      if (model.ends_generation(token)) biases.push_back({token, minus_infinity});
    }
  }
  const bool penalties =
      params.penalty_last_n != 0 &&
      (params.repeat_penalty != 1.0F || params.presence_penalty != 0.0F || params.frequency_penalty != 0.0F);
  sampler.before_.reset(make_chain());
  if (!biases.empty()) {
    add(sampler.before_.get(),
        llama_sampler_init_logit_bias(tokens, static_cast<std::int32_t>(biases.size()), biases.data()));
  }
  if (penalties) {
    sampler.penalty_last_n_ =
        params.penalty_last_n < 0 ? static_cast<std::int32_t>(model.info().context_train) : params.penalty_last_n;
    add(sampler.before_.get(), llama_sampler_init_penalties(tokens, sampler.penalty_last_n_, params.repeat_penalty,
                                                            params.frequency_penalty, params.presence_penalty));
  }
  if (!params.grammar.empty()) {
    sampler.grammar_.reset(llama_sampler_init_grammar(vocabulary, params.grammar.c_str(), "root"));
    if (!sampler.grammar_) return fail(ErrorCode::invalid_argument, "the grammar does not parse");
  }

  const bool greedy = params.temperature <= 0.0F;
  sampler.argmax_ = greedy && biases.empty() && !penalties && !sampler.grammar_;
  const std::uint32_t seed = params.seed ? *params.seed + choice : std::random_device{}();
  sampler.chain_.reset(make_chain());
  llama_sampler* chain = sampler.chain_.get();
  if (greedy) {
    add(chain, llama_sampler_init_greedy());
  } else if (params.mirostat == 1) {
    add(chain, llama_sampler_init_temp(params.temperature));
    add(chain, llama_sampler_init_mirostat(tokens, seed, params.mirostat_tau, params.mirostat_eta, 100));
  } else if (params.mirostat == 2) {
    add(chain, llama_sampler_init_temp(params.temperature));
    add(chain, llama_sampler_init_mirostat_v2(seed, params.mirostat_tau, params.mirostat_eta));
  } else {
    if (params.top_k > 0) add(chain, llama_sampler_init_top_k(params.top_k));
    if (params.typical_p < 1.0F) add(chain, llama_sampler_init_typical(params.typical_p, 1));
    if (params.top_p < 1.0F) add(chain, llama_sampler_init_top_p(params.top_p, 1));
    if (params.min_p > 0.0F) add(chain, llama_sampler_init_min_p(params.min_p, 1));
    add(chain, llama_sampler_init_temp(params.temperature));
    add(chain, llama_sampler_init_dist(seed));
  }
  return sampler;
}

void Sampler::load(std::span<const float> logits) {
  CHECK(logits.size() == candidates_.size());
  for (std::size_t i = 0; i < logits.size(); ++i) {
    // NaN compares with nothing and would poison every sort after it.
    const float logit = std::isnan(logits[i]) ? minus_infinity : logits[i];
    candidates_[i] = {static_cast<llama_token>(i), logit, 0.0F};
  }
}

Token Sampler::choose() {
  llama_token_data_array all{candidates_.data(), candidates_.size(), -1, false};
  llama_sampler_apply(chain_.get(), &all);
  return all.selected >= 0 ? all.data[all.selected].id : all.data[0].id;
}

Token Sampler::sample(std::span<const float> logits) {
  if (argmax_) return static_cast<Token>(std::ranges::max_element(logits) - logits.begin());
  load(logits);
  const auto apply = [&](llama_sampler* sampler) {
    llama_token_data_array all{candidates_.data(), candidates_.size(), -1, false};
    llama_sampler_apply(sampler, &all);
    return all;
  };
  if (llama_sampler_chain_n(before_.get()) > 0) apply(before_.get());
  if (!grammar_) return choose();

  // Most of the time the model itself follows the grammar: ask the grammar about one token before asking about all.
  const std::vector<llama_token_data> kept(candidates_);
  const Token free_choice = choose();
  llama_token_data one{free_choice, 1.0F, 0.0F};
  llama_token_data_array single{&one, 1, -1, false};
  llama_sampler_apply(grammar_.get(), &single);
  if (one.logit != minus_infinity) return free_choice;
  candidates_ = kept;
  apply(grammar_.get());
  return choose();
}

void Sampler::accept(Token token) {
  llama_sampler_accept(before_.get(), token);
  if (grammar_) llama_sampler_accept(grammar_.get(), token);
  llama_sampler_accept(chain_.get(), token);
}

void Sampler::accept_prompt(std::span<const Token> prompt) {
  if (penalty_last_n_ <= 0) return;
  const std::size_t count = std::min<std::size_t>(prompt.size(), static_cast<std::size_t>(penalty_last_n_));
  for (const Token token : prompt.last(count)) llama_sampler_accept(before_.get(), token);
}

TokenLogprob Sampler::logprob(const Model& model, std::span<const float> logits, Token chosen, std::uint32_t top) {
  const float most = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - most);
  const double log_sum = most + std::log(sum);
  const auto alternative = [&](Token token) {
    return TokenAlternative{.token = token,
                            .bytes = model.piece(token, ParseSpecial::yes),
                            .logprob = static_cast<float>(logits[static_cast<std::size_t>(token)] - log_sum)};
  };
  TokenLogprob result{.chosen = alternative(chosen)};
  std::vector<Token> order(logits.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<Token>(i);
  const auto count = static_cast<std::ptrdiff_t>(std::min<std::size_t>(top, order.size()));
  std::ranges::partial_sort(order, order.begin() + count, [&](Token a, Token b) {
    return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)];
  });
  for (std::ptrdiff_t i = 0; i < count; ++i) result.top.push_back(alternative(order[static_cast<std::size_t>(i)]));
  return result;
}

}  // namespace caravan::engine
