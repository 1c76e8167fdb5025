#include "http/reply.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <variant>

#include "base/check.h"

namespace caravan::http {
namespace {

// The characters of UTF-8 text.
std::uint32_t characters(std::string_view text) {
  return static_cast<std::uint32_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

}  // namespace

ReplyProgress::ReplyProgress(std::uint32_t prompts, std::uint32_t choices)
    : prompts_(prompts), choices_(choices), choices_open_(prompts * choices) {}

void ReplyProgress::failed(ApiError error) {
  if (!error_) error_ = std::move(error);
}

StreamReply::StreamReply(ReplyHead head, std::uint32_t prompts, std::uint32_t choices, std::vector<std::string> echoes)
    : head_(std::move(head)),
      progress_(prompts, choices),
      echoes_(std::move(echoes)),
      choices_per_prompt_(choices),
      choices_(progress_.choices()) {}

std::string StreamReply::compose(std::vector<Mail> mails) {
  out_.clear();
  for (Mail& mail : mails) {
    if (done()) break;
    std::visit([&](auto&& event) { on(mail.prompt, std::forward<decltype(event)>(event)); }, std::move(mail.event));
  }
  return std::exchange(out_, {});
}

void StreamReply::write_chunk(ChoiceText chunk, const engine::Account* account) {
  Choice& choice = choices_[chunk.index];
  const bool first = !std::exchange(choice.begun, true);
  if (first && !echoes_.empty()) chunk.text = echoes_[chunk.index / choices_per_prompt_] + chunk.text;
  chunk.logprobs_offset = choice.characters;
  choice.characters += characters(chunk.text);
  out_ += "data: ";
  out_ += render_chunk(head_, chunk, first ? ChunkPlace::first : ChunkPlace::later, account);
  out_ += "\n\n";
}

void StreamReply::on(std::uint32_t prompt, engine::Delta delta) {
  if (delta.text.empty() && delta.logprobs.empty()) return;
  write_chunk({.index = progress_.index(prompt, delta.choice),
               .text = std::move(delta.text),
               .logprobs = std::move(delta.logprobs),
               .finish = {}},
              nullptr);
}

void StreamReply::on(std::uint32_t prompt, const engine::ChoiceEnd& end) {
  ChoiceText chunk{.index = progress_.index(prompt, end.choice), .text = {}, .logprobs = {}, .finish = end.reason};
  progress_.choice_ended();
  if (progress_.choices_open() == 0)
    last_ = std::move(chunk);
  else
    write_chunk(std::move(chunk), nullptr);
}

void StreamReply::on(std::uint32_t /*prompt*/, const engine::Embedding& /*embedding*/) { CHECK(false); }

void StreamReply::on(std::uint32_t /*prompt*/, const engine::RequestEnd& end) {
  progress_.prompt_ended(end.account);
  if (!progress_.done()) return;
  const engine::Account account = progress_.account();
  CHECK(last_.has_value());
  write_chunk(std::move(*last_), &account);
  if (head_.usage_chunk) out_ += "data: " + render_usage_chunk(head_, account) + "\n\n";
  out_ += "data: [DONE]\n\n";
}

void StreamReply::on(std::uint32_t /*prompt*/, const engine::RequestFailed& failed) {
  const ApiError error = to_api_error(failed.error);
  out_ += "data: " + error_body(error) + "\n\n";
  progress_.failed(error);
}

BodyReply::BodyReply(ReplyHead head, std::uint32_t prompts, std::uint32_t choices, std::vector<std::string> echoes)
    : head_(std::move(head)), progress_(prompts, choices), choices_(progress_.choices()) {
  for (std::uint32_t i = 0; i < choices_.size(); ++i) {
    choices_[i].index = i;
    if (!echoes.empty()) choices_[i].text = echoes[i / choices];
  }
}

void BodyReply::add(std::vector<Mail> mails) {
  for (Mail& mail : mails) {
    if (done()) return;
    std::visit([&](auto&& event) { on(mail.prompt, std::forward<decltype(event)>(event)); }, std::move(mail.event));
  }
}

void BodyReply::on(std::uint32_t prompt, engine::Delta delta) {
  ChoiceText& choice = choices_[progress_.index(prompt, delta.choice)];
  choice.text += delta.text;
  std::ranges::move(delta.logprobs, std::back_inserter(choice.logprobs));
}

void BodyReply::on(std::uint32_t prompt, const engine::ChoiceEnd& end) {
  choices_[progress_.index(prompt, end.choice)].finish = end.reason;
  progress_.choice_ended();
}

void BodyReply::on(std::uint32_t /*prompt*/, const engine::Embedding& /*embedding*/) { CHECK(false); }

void BodyReply::on(std::uint32_t /*prompt*/, const engine::RequestEnd& end) { progress_.prompt_ended(end.account); }

void BodyReply::on(std::uint32_t /*prompt*/, const engine::RequestFailed& failed) {
  progress_.failed(to_api_error(failed.error));
}

}  // namespace caravan::http
