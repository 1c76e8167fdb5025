// Failures that can be expected travel as values: Result<T> holds a T or an Error. A miss is an empty value, not an
// Error; a programmer's mistake is CHECK (base/check.h). Exceptions stop at the boundary with a library.
#pragma once

#include <expected>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace caravan {

// What kind of failure it was, so that a caller can act on it (and HTTP can choose a status).
enum class ErrorCode {
  invalid_argument,  // the caller's value is wrong: 400
  unauthorized,      // no key, or a wrong one: 401
  not_found,         // no such thing: 404
  too_large,         // beyond a stated limit: 413
  exhausted,         // no room now, try again later: 429
  unavailable,       // loading, draining or stopped: 503
  unsupported,       // this model, file or build cannot do it
  io,                // file, socket or another system's failure
  cancelled,         // the caller gave up
  internal,          // ours
};

// `message` is one line for a person: it carries the value that was wrong and says what to do.
struct Error {
  ErrorCode code = ErrorCode::internal;
  std::string message;
};

template <class T>
using Result = std::expected<T, Error>;
using Status = Result<void>;

// return fail(ErrorCode::not_found, "{} is not there; give a GGUF file or a folder that holds one", path);
template <class... Args>
[[nodiscard]] std::unexpected<Error> fail(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  return std::unexpected(Error{code, fmt::format(format, std::forward<Args>(args)...)});
}

}  // namespace caravan
