#include "http/tokenization.h"

#include <string>
#include <utility>

#include <boost/json.hpp>

#include "engine/model.h"
#include "http/json_fields.h"
#include "http/json_text.h"
#include "http/openai.h"

namespace caravan::http {
namespace {

namespace json = boost::json;
using engine::AddSpecial;
using engine::ParseSpecial;
using engine::Token;

HttpResponse success(const json::object& object) { return {.status = 200, .body = to_text(object), .headers = {}}; }

// A piece that is not UTF-8 by itself is given as its bytes.
json::value piece_value(const std::string& piece) {
  if (is_utf8(piece)) return json::string(piece);
  json::array bytes;
  for (const char byte : piece) bytes.emplace_back(static_cast<unsigned char>(byte));
  return bytes;
}

ApiResult<json::object> tokenize(std::string_view body, const engine::Model& model) {
  const auto object = parse_object(body);
  if (!object) return std::unexpected(object.error());
  JsonFields fields(*object);
  std::string content;
  bool add_special = false;
  bool parse_special = true;
  bool with_pieces = false;
  fields.read("content", content);
  fields.read("add_special", add_special);
  fields.read("add_special_tokens", add_special);
  fields.read("parse_special", parse_special);
  fields.read("with_pieces", with_pieces);
  if (fields.error()) return std::unexpected(*fields.error());
  if (fields.find("content") == nullptr)
    return bad_request("content", "there is no content; give the text to tokenize");
  const auto tokens = model.tokenize(content, add_special ? AddSpecial::yes : AddSpecial::no,
                                     parse_special ? ParseSpecial::yes : ParseSpecial::no);
  if (!tokens) return std::unexpected(to_api_error(tokens.error()));
  json::array array;
  for (const Token token : *tokens) {
    if (!with_pieces) {
      array.emplace_back(token);
      continue;
    }
    json::object entry;
    entry["id"] = token;
    entry["piece"] = piece_value(model.piece(token, ParseSpecial::yes));
    array.emplace_back(std::move(entry));
  }
  json::object answer;
  answer["tokens"] = std::move(array);
  return answer;
}

ApiResult<json::object> detokenize(std::string_view body, const engine::Model& model) {
  const auto object = parse_object(body);
  if (!object) return std::unexpected(object.error());
  const json::value* value = JsonFields(*object).find("tokens");
  if (value == nullptr || !value->is_array()) return bad_request("tokens", "give an array of token ids as \"tokens\"");
  std::vector<Token> tokens;
  for (const json::value& element : value->get_array()) {
    const auto token = to_integer(element);
    if (!token || *token < 0 || *token >= model.info().vocabulary)
      return bad_request("tokens", "{} is no token of this model, which has 0 to {}",
                         element.is_number() ? to_text(element) : std::string(kind_name(element)),
                         model.info().vocabulary - 1);
    tokens.push_back(static_cast<Token>(*token));
  }
  json::object answer;
  answer["content"] = valid_utf8(model.detokenize(tokens, ParseSpecial::yes));
  return answer;
}

ApiResult<json::object> apply_template(std::string_view body, const Serving& serving) {
  const auto call = parse_chat(body, {});
  if (!call) return std::unexpected(call.error());
  if (serving.chat_template == nullptr)
    return bad_request("messages", "{} has no chat template", serving.model->info().name);
  const auto text = serving.chat_template->render(call->messages, call->generation_prompt);
  if (!text) return std::unexpected(to_api_error(text.error()));
  json::object answer;
  answer["prompt"] = valid_utf8(*text);
  return answer;
}

HttpResponse respond(const ApiResult<json::object>& result) {
  return result ? success(*result) : error_response(result.error());
}

}  // namespace

HttpResponse answer_tokenize(const HttpRequest& request, const Serving& serving, ServerState& /*state*/) {
  return respond(tokenize(request.body, *serving.model));
}

HttpResponse answer_detokenize(const HttpRequest& request, const Serving& serving, ServerState& /*state*/) {
  return respond(detokenize(request.body, *serving.model));
}

HttpResponse answer_apply_template(const HttpRequest& request, const Serving& serving, ServerState& /*state*/) {
  return respond(apply_template(request.body, serving));
}

}  // namespace caravan::http
