#include "http/api_error.h"

#include <boost/json/object.hpp>

#include "http/json_text.h"

namespace caravan::http {
namespace {

namespace json = boost::json;

unsigned status_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument:
      return 400;
    case ErrorCode::unauthorized:
      return 401;
    case ErrorCode::not_found:
      return 404;
    case ErrorCode::too_large:
      return 413;
    case ErrorCode::exhausted:
      return 429;
    case ErrorCode::unavailable:
      return 503;
    case ErrorCode::unsupported:
      return 400;
    case ErrorCode::io:
      return 500;
    case ErrorCode::cancelled:
      return 499;
    case ErrorCode::internal:
      return 500;
  }
  return 500;
}

const char* type_of(unsigned status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 429:
      return "rate_limit_error";
    case 503:
      return "unavailable_error";
    default:
      return status < 500 ? "invalid_request_error" : "server_error";
  }
}

json::value text_or_null(const std::string& text) {
  if (text.empty()) return nullptr;
  return json::string(text);
}

}  // namespace

ApiError to_api_error(const Error& error) { return simple_error(status_of(error.code), error.message); }

ApiError simple_error(unsigned status, std::string message, std::string code) {
  return ApiError{.status = status,
                  .message = std::move(message),
                  .param = {},
                  .code = std::move(code),
                  .n_prompt_tokens = {},
                  .n_ctx = {}};
}

std::string error_body(const ApiError& error) {
  json::object inner;
  inner["message"] = valid_utf8(error.message);
  inner["type"] = type_of(error.status);
  inner["param"] = text_or_null(error.param);
  inner["code"] = text_or_null(error.code);
  if (error.n_prompt_tokens) inner["n_prompt_tokens"] = *error.n_prompt_tokens;
  if (error.n_ctx) inner["n_ctx"] = *error.n_ctx;
  json::object outer;
  outer["error"] = std::move(inner);
  return to_text(outer);
}

HttpResponse error_response(const ApiError& error) {
  HttpResponse response{.status = error.status, .body = error_body(error), .headers = {}};
  if (error.status == 429 || error.status == 503) response.headers.emplace_back("Retry-After", "1");
  if (error.status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

}  // namespace caravan::http
