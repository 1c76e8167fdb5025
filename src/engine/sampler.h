// Chooses tokens from logits as a request's SamplingParams say. One for each choice, since it keeps state (random
// numbers, penalties, grammar, mirostat). Not thread-safe; may be made on one thread and used on another.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
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

  // The token for a row of raw logits, one for each token of the vocabulary. Does not accept it.
  Token sample(std::span<const float> logits);
  // Tells penalties, grammar and mirostat which token was generated.
  void accept(Token token);
  // Tells the penalties, and nothing else, about the prompt's last tokens.
  void accept_prompt(std::span<const Token> prompt);

  // log-softmax of the raw logits: the chosen token and the `top` most probable ones, most probable first.
  static TokenLogprob logprob(const Model& model, std::span<const float> logits, Token chosen, std::uint32_t top);

 private:
  Sampler() = default;
  void load(std::span<const float> logits);
  Token choose();

  struct Deleter {
    void operator()(llama_sampler* sampler) const;
  };
  using Handle = std::unique_ptr<llama_sampler, Deleter>;

  bool argmax_ = false;  // greedy and nothing that changes the logits
  Handle before_;        // bias and penalties, over the whole vocabulary
  Handle grammar_;       // none: any text
  Handle chain_;         // truncation and the draw
  std::int32_t penalty_last_n_ = 0;
  std::vector<llama_token_data> candidates_;
};

}  // namespace caravan::engine
