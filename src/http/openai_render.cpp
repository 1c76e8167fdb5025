#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>

#include <boost/json.hpp>
#include <openssl/evp.h>

#include "base/check.h"
#include "http/json_text.h"
#include "http/openai.h"

namespace caravan::http {
namespace {

namespace json = boost::json;

const char* name_of(engine::FinishReason reason) {
  switch (reason) {
    case engine::FinishReason::stop:
      return "stop";
    case engine::FinishReason::length:
      return "length";
  }
  return "stop";
}

json::value finish_value(const std::optional<engine::FinishReason>& finish) {
  if (!finish) return nullptr;
  return name_of(*finish);
}

// As OpenAI has it: what cannot be is -9999.
double logprob_number(float logprob) { return logprob < -9999.0F ? -9999.0 : std::round(logprob * 1e6) / 1e6; }

json::object alternative_object(const engine::TokenAlternative& alternative) {
  json::array bytes;
  for (const char byte : alternative.bytes) bytes.emplace_back(static_cast<unsigned char>(byte));
  json::object object;
  object["token"] = valid_utf8(alternative.bytes);
  object["logprob"] = logprob_number(alternative.logprob);
  object["bytes"] = std::move(bytes);
  return object;
}

json::value chat_logprobs(std::span<const engine::TokenLogprob> logprobs) {
  json::array content;
  for (const engine::TokenLogprob& logprob : logprobs) {
    json::object entry = alternative_object(logprob.chosen);
    json::array top;
    for (const engine::TokenAlternative& alternative : logprob.top) top.emplace_back(alternative_object(alternative));
    entry["top_logprobs"] = std::move(top);
    content.emplace_back(std::move(entry));
  }
  json::object object;
  object["content"] = std::move(content);
  object["refusal"] = nullptr;
  return object;
}

std::uint32_t characters(const std::string& bytes) {
  const std::string text = valid_utf8(bytes);
  return static_cast<std::uint32_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

json::value legacy_logprobs(std::span<const engine::TokenLogprob> logprobs, std::uint32_t offset) {
  json::array tokens;
  json::array values;
  json::array tops;
  json::array offsets;
  for (const engine::TokenLogprob& logprob : logprobs) {
    tokens.emplace_back(valid_utf8(logprob.chosen.bytes));
    values.emplace_back(logprob_number(logprob.chosen.logprob));
    json::object top;
    // Parts of characters may look alike; the most probable one, which comes first, stays.
    for (const auto& alternative : logprob.top)
      top.emplace(valid_utf8(alternative.bytes), logprob_number(alternative.logprob));
    tops.emplace_back(std::move(top));
    offsets.emplace_back(offset);
    offset += characters(logprob.chosen.bytes);
  }
  json::object object;
  object["tokens"] = std::move(tokens);
  object["token_logprobs"] = std::move(values);
  object["top_logprobs"] = std::move(tops);
  object["text_offset"] = std::move(offsets);
  return object;
}

json::value logprobs_value(const ReplyHead& head, const ChoiceText& choice) {
  if (!head.logprobs || choice.logprobs.empty()) return nullptr;
  if (head.api == Api::chat) return chat_logprobs(choice.logprobs);
  return legacy_logprobs(choice.logprobs, choice.logprobs_offset);
}

json::object usage_object(const engine::Account& account) {
  json::object details;
  details["cached_tokens"] = account.cached_total();
  json::object usage;
  usage["prompt_tokens"] = account.prompt_tokens;
  usage["completion_tokens"] = account.completion_tokens;
  usage["total_tokens"] = account.prompt_tokens + account.completion_tokens;
  usage["prompt_tokens_details"] = std::move(details);
  return usage;
}

// Thousandths are enough, and easier to read.
double rounded(double value) { return std::round(value * 1000) / 1000; }

json::object account_object(const ReplyHead& head, const engine::Account& account) {
  json::object cached;
  for (std::size_t tier = 0; tier < kv::tier_kinds; ++tier) {
    cached[kv::name_of(static_cast<kv::TierKind>(tier))] = account.cached[tier];
  }
  json::object miss;
  miss["reason"] = engine::name_of(account.miss);
  miss["at"] = account.miss_at;
  if (account.miss == engine::MissReason::diverged) miss["shared_after"] = account.shared_after;
  json::object ms;
  ms["queue"] = rounded(milliseconds(account.queue));
  ms["match"] = rounded(milliseconds(account.match));
  ms["restore"] = rounded(milliseconds(account.restore));
  ms["prefill"] = rounded(milliseconds(account.prefill));
  ms["decode"] = rounded(milliseconds(account.decode));
  json::object object;
  object["node"] = head.node;
  object["session"] = head.session;
  object["cached"] = std::move(cached);
  object["computed"] = account.computed;
  object["miss"] = std::move(miss);
  object["ms"] = std::move(ms);
  return object;
}

// llama-server's.
json::object timings_object(const engine::Account& account) {
  const double prompt = milliseconds(account.match + account.prefill);
  const double predicted = milliseconds(account.decode);
  const auto each = [](double ms, std::uint32_t tokens) { return tokens == 0 ? 0.0 : rounded(ms / tokens); };
  const auto rate = [](double ms, std::uint32_t tokens) { return ms <= 0 ? 0.0 : rounded(tokens * 1000.0 / ms); };
  json::object timings;
  timings["cache_n"] = account.cached_total();
  timings["prompt_n"] = account.computed;
  timings["prompt_ms"] = rounded(prompt);
  timings["prompt_per_token_ms"] = each(prompt, account.computed);
  timings["prompt_per_second"] = rate(prompt, account.computed);
  timings["predicted_n"] = account.completion_tokens;
  timings["predicted_ms"] = rounded(predicted);
  timings["predicted_per_token_ms"] = each(predicted, account.completion_tokens);
  timings["predicted_per_second"] = rate(predicted, account.completion_tokens);
  return timings;
}

json::object reply(const ReplyHead& head, const char* chat_kind) {
  json::object object;
  object["id"] = head.id;
  object["object"] = head.api == Api::chat ? chat_kind : "text_completion";
  object["created"] = static_cast<std::int64_t>(head.created);
  object["model"] = head.model;
  return object;
}

std::string base64(std::span<const float> values) {
  static_assert(std::endian::native == std::endian::little, "embeddings travel as little-endian floats");
  const auto bytes = static_cast<int>(values.size_bytes());
  std::vector<unsigned char> encoded(4 * ((values.size_bytes() + 2) / 3) + 1);
  const int length = EVP_EncodeBlock(encoded.data(), reinterpret_cast<const unsigned char*>(values.data()), bytes);
  return {encoded.begin(), encoded.begin() + length};
}

}  // namespace

std::uint32_t characters(std::span<const engine::TokenLogprob> logprobs) {
  std::uint32_t count = 0;
  for (const auto& logprob : logprobs) count += characters(logprob.chosen.bytes);
  return count;
}

engine::Account sum(std::span<const engine::Account> accounts) {
  CHECK(!accounts.empty());
  engine::Account total = accounts.front();
  for (const engine::Account& account : accounts.subspan(1)) {
    total.prompt_tokens += account.prompt_tokens;
    total.completion_tokens += account.completion_tokens;
    for (std::size_t tier = 0; tier < kv::tier_kinds; ++tier) total.cached[tier] += account.cached[tier];
    total.restore += account.restore;
    total.computed += account.computed;
    total.preemptions += account.preemptions;
    total.queue = std::max(total.queue, account.queue);
    total.match += account.match;
    total.prefill += account.prefill;
    total.decode = std::max(total.decode, account.decode);
    // The first prompt that was not found whole says where and why.
    if (total.miss != engine::MissReason::none || account.miss == engine::MissReason::none) continue;
    total.miss = account.miss;
    total.miss_at = account.miss_at;
    total.shared_after = account.shared_after;
  }
  return total;
}

std::string render_chunk(const ReplyHead& head, const ChoiceText& choice, ChunkPlace place,
                         const engine::Account* account) {
  json::object entry;
  entry["index"] = choice.index;
  if (head.api == Api::chat) {
    json::object delta;
    if (place == ChunkPlace::first) delta["role"] = "assistant";
    if (place == ChunkPlace::first || !choice.text.empty()) delta["content"] = choice.text;
    entry["delta"] = std::move(delta);
  } else {
    entry["text"] = choice.text;
  }
  entry["logprobs"] = logprobs_value(head, choice);
  entry["finish_reason"] = finish_value(choice.finish);
  json::object object = reply(head, "chat.completion.chunk");
  json::array choices;
  choices.emplace_back(std::move(entry));
  object["choices"] = std::move(choices);
  if (head.usage_chunk) object["usage"] = nullptr;
  if (account != nullptr) {
    object["caravan"] = account_object(head, *account);
    object["timings"] = timings_object(*account);
  }
  return to_text(object);
}

std::string render_usage_chunk(const ReplyHead& head, const engine::Account& account) {
  json::object object = reply(head, "chat.completion.chunk");
  object["choices"] = json::array();
  object["usage"] = usage_object(account);
  return to_text(object);
}

std::string render_body(const ReplyHead& head, std::span<const ChoiceText> choices, const engine::Account& account) {
  json::array entries;
  for (const ChoiceText& choice : choices) {
    json::object entry;
    entry["index"] = choice.index;
    if (head.api == Api::chat) {
      json::object message;
      message["role"] = "assistant";
      message["content"] = choice.text;
      message["refusal"] = nullptr;
      entry["message"] = std::move(message);
    } else {
      entry["text"] = choice.text;
    }
    entry["logprobs"] = logprobs_value(head, choice);
    entry["finish_reason"] = finish_value(choice.finish);
    entries.emplace_back(std::move(entry));
  }
  json::object object = reply(head, "chat.completion");
  object["choices"] = std::move(entries);
  object["usage"] = usage_object(account);
  object["caravan"] = account_object(head, account);
  object["timings"] = timings_object(account);
  return to_text(object);
}

std::string render_embeddings(std::string_view model, std::span<const engine::Embedding> embeddings,
                              EmbeddingCall::Encoding encoding, std::uint32_t prompt_tokens) {
  // Written straight away: thousands of numbers need no tree of JSON values.
  std::string text = R"({"object":"list","data":[)";
  for (std::size_t i = 0; i < embeddings.size(); ++i) {
    fmt::format_to(std::back_inserter(text), R"({}{{"object":"embedding","index":{},"embedding":)", i == 0 ? "" : ",",
                   i);
    if (encoding == EmbeddingCall::Encoding::base64)
      fmt::format_to(std::back_inserter(text), "\"{}\"}}", base64(embeddings[i].values));
    else
      fmt::format_to(std::back_inserter(text), "[{}]}}", fmt::join(embeddings[i].values, ","));
  }
  fmt::format_to(std::back_inserter(text), R"(],"model":{},"usage":{{"prompt_tokens":{},"total_tokens":{}}}}})",
                 to_text(json::value(json::string_view(model.data(), model.size()))), prompt_tokens, prompt_tokens);
  return text;
}

}  // namespace caravan::http
