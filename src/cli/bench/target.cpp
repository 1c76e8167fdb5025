#include "cli/bench/target.h"

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>

#include "cli/bench/event_stream.h"
#include "cli/bench/text.h"

namespace caravan::cli::bench {

namespace asio = boost::asio;
namespace json = boost::json;

namespace {

std::optional<json::object> object_in(const HttpAnswer& answer) {
  if (answer.status != 200) return std::nullopt;
  boost::system::error_code problem;
  json::value value = json::parse(answer.body, problem);
  if (problem || !value.is_object()) return std::nullopt;
  return std::move(value.as_object());
}

std::optional<std::string> first_model(const json::object& models) {
  const auto* data = models.if_contains("data");
  if (data == nullptr || !data->is_array() || data->as_array().empty()) return std::nullopt;
  const auto& first = data->as_array().front();
  const auto* id = first.is_object() ? first.as_object().if_contains("id") : nullptr;
  if (id == nullptr || !id->is_string()) return std::nullopt;
  return std::string(id->as_string());
}

}  // namespace

Target::Target(asio::io_context& context, std::string label, Url url, const BenchOptions& options)
    : label_(std::move(label)),
      model_(options.model),
      options_(options),
      client_(context, std::move(url), options.api_key, options.timeout) {}

asio::awaitable<Status> Target::meet() {
  const auto answer = co_await client_.send("/v1/models", "", HttpClient::Watch());
  if (!answer) co_return std::unexpected(answer.error());
  if (answer->status == 401 || answer->status == 403) {
    co_return fail(ErrorCode::unauthorized, "{}: the server wants a key (status {}); give --api-key", label_,
                   answer->status);
  }
  if (!model_.empty()) co_return Status();
  const auto models = object_in(*answer);
  model_ = models ? first_model(*models).value_or("default") : "default";
  co_return Status();
}

asio::awaitable<std::optional<std::size_t>> Target::count_tokens(std::string text) {
  // llama-server and Caravan read `content`, vLLM reads `prompt`.
  json::object body{{"content", text}, {"prompt", text}, {"model", model_}, {"add_special_tokens", false}};
  const auto answer = co_await client_.send("/tokenize", json::serialize(body), HttpClient::Watch());
  if (!answer) co_return std::nullopt;
  const auto object = object_in(*answer);
  const auto* tokens = object ? object->if_contains("tokens") : nullptr;
  if (tokens == nullptr || !tokens->is_array()) co_return std::nullopt;
  co_return tokens->as_array().size();
}

asio::awaitable<Result<Texts>> Target::make_texts(std::vector<TextPlan> plans, std::function<void(std::size_t)> made) {
  Texts out;
  for (const auto& plan : plans) {
    TextFitter fitter(plan);
    bool done = out.estimated;
    while (!done) {
      const auto tokens = co_await count_tokens(fitter.candidate());
      if (!tokens && !out.texts.empty()) {
        co_return fail(ErrorCode::io, "{}: /tokenize answered at first and then failed", label_);
      }
      out.estimated = !tokens.has_value();
      done = out.estimated || fitter.count(*tokens);
    }
    if (out.estimated || !fitter.exact()) ++out.inexact;
    out.texts[plan] = out.estimated ? estimated_text(plan) : fitter.candidate();
    made(out.texts.size());
  }
  co_return out;
}

std::string Target::request_body(const std::vector<Message>& messages, std::uint32_t answer_tokens) const {
  json::array list;
  for (const auto& message : messages) list.push_back({{"role", message.role}, {"content", message.content}});
  json::object body{{"model", model_},
                    {"messages", std::move(list)},
                    {"max_tokens", answer_tokens},
                    {"temperature", options_.temperature},
                    {"stream", options_.stream}};
  if (options_.stream) body["stream_options"] = {{"include_usage", true}};
  if (options_.ignore_eos) body["ignore_eos"] = true;
  return json::serialize(body);
}

asio::awaitable<Record> Target::ask(std::vector<Message> messages, std::uint32_t answer_tokens) {
  AnswerReader reader(Clock::now());
  EventStream events;
  HttpClient::Watch watch;
  watch.connected = [&] { reader = AnswerReader(Clock::now()); };
  if (options_.stream) {
    watch.arrived = [&](std::string_view piece) {
      const TimePoint now = Clock::now();
      for (const auto& data : events.feed(piece)) reader.event(data, now);
    };
  }
  const auto answer = co_await client_.send("/v1/chat/completions", request_body(messages, answer_tokens), watch);
  const TimePoint now = Clock::now();
  if (!answer) {
    reader.fail(answer.error().message, now);
  } else if (answer->status != 200 || !options_.stream) {
    reader.body(answer->status, answer->body, now);
  } else {
    reader.end(now);
  }
  co_return reader.take();
}

asio::awaitable<std::optional<std::uint64_t>> Target::peak_cells() {
  const auto answer = co_await client_.send("/caravan/v1/cache", "", HttpClient::Watch());
  if (!answer) co_return std::nullopt;
  const auto object = object_in(*answer);
  const auto* device = object ? object->if_contains("device") : nullptr;
  const auto* peak = device != nullptr && device->is_object() ? device->as_object().if_contains("cells_peak") : nullptr;
  if (peak == nullptr || !peak->is_number()) co_return std::nullopt;
  boost::system::error_code problem;
  const auto cells = peak->to_number<std::uint64_t>(problem);
  if (problem) co_return std::nullopt;
  co_return cells;
}

}  // namespace caravan::cli::bench
