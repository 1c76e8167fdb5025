// What becomes of the engine's events: a stream's SSE text, or one body. Pure: mail in, text out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "http/api_error.h"
#include "http/mailbox.h"
#include "http/openai.h"

namespace caravan::http {

// What both kinds keep: which choices are open, and the accounts.
class ReplyProgress {
 public:
  ReplyProgress(std::uint32_t prompts, std::uint32_t choices);

  [[nodiscard]] std::uint32_t index(std::uint32_t prompt, std::uint32_t choice) const {
    return prompt * choices_ + choice;
  }
  [[nodiscard]] std::uint32_t choices() const { return prompts_ * choices_; }
  [[nodiscard]] std::uint32_t choices_open() const { return choices_open_; }

  void choice_ended() { --choices_open_; }
  void prompt_ended(const engine::Account& account) { accounts_.push_back(account); }
  void failed(ApiError error);

  // All accounts are there, or one prompt failed.
  [[nodiscard]] bool done() const { return error_ || accounts_.size() == prompts_; }
  [[nodiscard]] const std::optional<ApiError>& error() const { return error_; }
  [[nodiscard]] engine::Account account() const { return sum(accounts_); }

 private:
  std::uint32_t prompts_;
  std::uint32_t choices_;
  std::uint32_t choices_open_;
  std::vector<engine::Account> accounts_;
  std::optional<ApiError> error_;
};

// The order of a stream: for each choice its role once and first, deltas with finish_reason null, one final value; the
// last of these carries the account and waits for it; then usage, if asked for, then [DONE]. After a failure: an error
// event and nothing more.
class StreamReply {
 public:
  // `echoes`: the prompts as text, to come first; empty: not asked for.
  StreamReply(ReplyHead head, std::uint32_t prompts, std::uint32_t choices, std::vector<std::string> echoes);

  std::string compose(std::vector<Mail> mails);
  [[nodiscard]] bool done() const { return progress_.done(); }
  [[nodiscard]] const std::optional<ApiError>& error() const { return progress_.error(); }

 private:
  struct Choice {
    bool begun = false;
    std::uint32_t characters = 0;
  };

  void write_chunk(ChoiceText chunk, const engine::Account* account);
  void on(std::uint32_t prompt, engine::Delta delta);
  void on(std::uint32_t prompt, const engine::ChoiceEnd& end);
  void on(std::uint32_t prompt, const engine::Embedding& embedding);
  void on(std::uint32_t prompt, const engine::RequestEnd& end);
  void on(std::uint32_t prompt, const engine::RequestFailed& failed);

  ReplyHead head_;
  ReplyProgress progress_;
  std::vector<std::string> echoes_;
  std::uint32_t choices_per_prompt_;
  std::vector<Choice> choices_;
  std::optional<ChoiceText> last_;  // the final chunk of the choice that ended last, waiting for the account
  std::string out_;
};

class BodyReply {
 public:
  BodyReply(ReplyHead head, std::uint32_t prompts, std::uint32_t choices, std::vector<std::string> echoes);

  void add(std::vector<Mail> mails);
  [[nodiscard]] bool done() const { return progress_.done(); }
  [[nodiscard]] const std::optional<ApiError>& error() const { return progress_.error(); }
  // Once done without an error. Takes a while for long logprobs.
  [[nodiscard]] std::string body() const { return render_body(head_, choices_, progress_.account()); }

 private:
  void on(std::uint32_t prompt, engine::Delta delta);
  void on(std::uint32_t prompt, const engine::ChoiceEnd& end);
  void on(std::uint32_t prompt, const engine::Embedding& embedding);
  void on(std::uint32_t prompt, const engine::RequestEnd& end);
  void on(std::uint32_t prompt, const engine::RequestFailed& failed);

  ReplyHead head_;
  ReplyProgress progress_;
  std::vector<ChoiceText> choices_;
};

}  // namespace caravan::http
