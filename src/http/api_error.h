// Errors in OpenAI's shape: {"error": {"message", "type", "param", "code"}}.
#pragma once

#include <cstdint>
#include <expected>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/result.h"
#include "http/message.h"

namespace caravan::http {

struct ApiError {
  unsigned status = 500;
  std::string message;
  std::string param;  // the field that was wrong; empty: null
  std::string code;   // empty: null
  // Set when a prompt is longer than the context.
  std::optional<std::uint32_t> n_prompt_tokens;
  std::optional<std::uint32_t> n_ctx;
};

template <class T>
using ApiResult = std::expected<T, ApiError>;

// return bad_request("n", "n is {}; give 1 to {}", n, limit);
template <class... Args>
[[nodiscard]] std::unexpected<ApiError> bad_request(const std::string& param, fmt::format_string<Args...> format,
                                                    Args&&... args) {
  return std::unexpected(ApiError{.status = 400,
                                  .message = fmt::format(format, std::forward<Args>(args)...),
                                  .param = param,
                                  .code = {},
                                  .n_prompt_tokens = {},
                                  .n_ctx = {}});
}

ApiError to_api_error(const Error& error);
ApiError simple_error(unsigned status, std::string message, std::string code = {});

// The object {"error": ...} as text; also the payload of a stream's error event.
std::string error_body(const ApiError& error);
// With Retry-After on 429 and 503, WWW-Authenticate on 401.
HttpResponse error_response(const ApiError& error);

}  // namespace caravan::http
