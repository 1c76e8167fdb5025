// Reads the fields of a JSON object into values and keeps the first thing that was wrong. Fields that are absent or
// null leave their value as it was.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <boost/json/fwd.hpp>

#include "http/api_error.h"

namespace caravan::http {

// A JSON object, or what is wrong with `body`. The result is owned by the caller.
ApiResult<boost::json::object> parse_object(std::string_view body);

class JsonFields {
 public:
  // `object` must outlive this. `path` precedes the names in errors: "response_format.".
  explicit JsonFields(const boost::json::object& object, std::string path = {})
      : object_(object), path_(std::move(path)) {}

  // Null when the field is absent or null.
  [[nodiscard]] const boost::json::value* find(std::string_view name) const;

  void read(std::string_view name, float& out);
  void read(std::string_view name, bool& out);
  void read(std::string_view name, std::string& out);  // without NUL
  void read(std::string_view name, std::int32_t& out);
  // Integers from `low` to `high`; 10.0 and 1e3 are integers too, "10" is not.
  std::optional<std::int64_t> integer(std::string_view name, std::int64_t low, std::int64_t high);

  template <class... Args>
  void fail(std::string_view name, fmt::format_string<Args...> format, Args&&... args) {
    if (error_) return;
    auto param = path_ + std::string(name);
    error_ = bad_request(param, "{}", param + ": " + fmt::format(format, std::forward<Args>(args)...)).error();
  }
  void fail(ApiError error) {
    if (!error_) error_ = std::move(error);
  }
  [[nodiscard]] const std::optional<ApiError>& error() const { return error_; }

 private:
  const boost::json::object& object_;
  std::string path_;
  std::optional<ApiError> error_;
};

// What kind of value it is, for errors: "a string", "an object".
const char* kind_name(const boost::json::value& value);
// The value as a whole number, when it is one.
std::optional<std::int64_t> to_integer(const boost::json::value& value);
bool has_nul(std::string_view text);

}  // namespace caravan::http
