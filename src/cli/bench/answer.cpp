#include "cli/bench/answer.h"

#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>
#include <fmt/format.h>

namespace caravan::cli::bench {

namespace json = boost::json;

namespace {

const json::value* member(const json::value* value, std::string_view name) {
  const auto* object = value == nullptr ? nullptr : value->if_object();
  return object == nullptr ? nullptr : object->if_contains(name);
}

std::optional<std::uint32_t> count_of(const json::value* value) {
  if (value == nullptr) return std::nullopt;
  boost::system::error_code problem;
  const auto count = value->to_number<std::uint32_t>(problem);
  if (problem) return std::nullopt;
  return count;
}

std::string text_of(const json::value* value) {
  const auto* text = value == nullptr ? nullptr : value->if_string();
  return text == nullptr ? std::string() : std::string(*text);
}

const json::value* first_choice(const json::value& answer) {
  const auto* choices = member(&answer, "choices");
  const auto* array = choices == nullptr ? nullptr : choices->if_array();
  return array == nullptr || array->empty() ? nullptr : &array->front();
}

void read_usage(const json::value& answer, Record& record) {
  const auto* usage = member(&answer, "usage");
  if (usage == nullptr || !usage->is_object()) return;
  record.has_usage = true;
  record.prompt_tokens = count_of(member(usage, "prompt_tokens")).value_or(0);
  record.completion_tokens = count_of(member(usage, "completion_tokens")).value_or(0);
  record.cached_tokens = count_of(member(member(usage, "prompt_tokens_details"), "cached_tokens"));
}

// Reasoning models send their thoughts in a field of their own; they are decoded like any other text.
std::string text_in(const json::value* message) {
  return text_of(member(message, "reasoning_content")) + text_of(member(message, "content"));
}

std::optional<std::string> error_in(const json::value& answer) {
  const auto* error = member(&answer, "error");
  if (error == nullptr || error->is_null()) return std::nullopt;
  const std::string message = text_of(member(error, "message"));
  return message.empty() ? "the server answered with an error" : message;
}

}  // namespace

void AnswerReader::event(std::string_view data, TimePoint now) {
  if (data == "[DONE]") {
    done_ = true;
    return;
  }
  boost::system::error_code problem;
  const json::value chunk = json::parse(data, problem);
  if (problem) return fail("an event of the stream is not JSON", now);
  if (auto error = error_in(chunk)) return fail(std::move(*error), now);
  read_usage(chunk, record_);
  const json::value* delta = member(first_choice(chunk), "delta");
  const std::string text = text_in(delta);
  if (text.empty()) return;
  if (pieces_++ == 0) {
    record_.ttft_ms = milliseconds(now - sent_);
  } else {
    record_.gaps_ms.push_back(milliseconds(now - last_text_));
  }
  last_text_ = now;
  record_.text += text_of(member(delta, "content"));
}

void AnswerReader::body(unsigned status, std::string_view json_text, TimePoint now) {
  boost::system::error_code problem;
  const json::value answer = json::parse(json_text, problem);
  if (status != 200) {
    const auto said = problem ? std::nullopt : error_in(answer);
    return fail(fmt::format("status {}{}", status, said ? ": " + *said : ""), now);
  }
  if (problem) return fail("the answer is not JSON", now);
  if (auto error = error_in(answer)) return fail(std::move(*error), now);
  const auto* choice = first_choice(answer);
  if (choice == nullptr || !choice->is_object()) return fail("the answer has no choices", now);
  read_usage(answer, record_);
  record_.text = text_of(member(member(choice, "message"), "content"));
  record_.total_ms = milliseconds(now - sent_);
}

void AnswerReader::fail(std::string why, TimePoint now) {
  record_.total_ms = milliseconds(now - sent_);
  if (record_.error.empty()) record_.error = std::move(why);
}

void AnswerReader::end(TimePoint now) {
  record_.total_ms = milliseconds(now - sent_);
  if (!done_) return fail("the stream ended before [DONE]", now);
  if (!record_.has_usage) record_.completion_tokens = pieces_;
}

}  // namespace caravan::cli::bench
