// Chooses tokens from logits as a request's SamplingParams say. One for each choice, since it keeps state (random
// numbers, penalties, grammar, mirostat). Not thread-safe; may be made on one thread and used on another.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/result.h"
#include "engine/request.h"

struct llama_sampler;
struct llama_token_data;

namespace caravan::engine {

class Model;

// Ranges, token ids and that the grammar parses. invalid_argument names the field as the API calls it.
Status validate(const SamplingParams& params, const Model& model);

class Sampler {
 public:
  // `choice` makes the seeds of a request's choices differ. `params` must be valid.
  static Result<Sampler> create(const Model& model, const SamplingParams& params, std::uint32_t choice);
  ~Sampler();
  Sampler(Sampler&& other) noexcept;
  Sampler& operator=(Sampler&& other) noexcept;

  // The token for a row of raw logits, one for each token of the vocabulary. Does not accept it. None when nothing may
  // follow: the grammar allows no token that is not banned, or no logit is a number.
  std::optional<Token> sample(std::span<const float> logits);
  // Tells penalties, grammar and mirostat which token was generated.
  void accept(Token token);
  // Tells the penalties, and nothing else, about the prompt's last tokens.
  void accept_prompt(std::span<const Token> prompt);

  // log-softmax of the raw logits: the chosen token and the `top` most probable ones, most probable first. Always
  // finite.
  static TokenLogprob logprob(const Model& model, std::span<const float> logits, Token chosen, std::uint32_t top);

 private:
  explicit Sampler(const Model& model);
  void note(Token token);
  void adjust(std::span<const float> logits);
  void load_best(std::span<const float> logits, std::size_t count);
  void load_all(std::span<const float> logits);
  [[nodiscard]] bool allowed(Token token);
  std::optional<Token> sample_by_grammar(std::span<const float> logits);
  std::optional<Token> choose();

  struct Deleter {
    void operator()(llama_sampler* sampler) const;
  };
  using Handle = std::unique_ptr<llama_sampler, Deleter>;

  const Model* model_;
  bool greedy_ = false;
  std::size_t best_ = 0;  // only that many of the largest logits can matter; 0: all can
  float log_range_ = 0;   // the chain takes logarithms: logits further than this below the largest are left out; 0: no
  std::vector<std::pair<Token, float>> biases_;
  Handle penalties_;           // none: none
  Handle grammar_;             // none: any text
  bool grammar_over_ = false;  // it has ended, or was left
  Handle chain_;               // truncation and the draw

  std::deque<Token> recent_;  // what the penalties look back at
  std::size_t recent_max_ = 0;

  // Scratch, kept allocated. `adjusted_` holds the tokens whose logit is not the raw one, marked in `is_adjusted_`.
  std::vector<llama_token_data> adjusted_;
  std::vector<char> is_adjusted_;
  std::vector<llama_token_data> candidates_;
  bool sorted_ = false;
};

}  // namespace caravan::engine
