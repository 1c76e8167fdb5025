#include "http/json_fields.h"

#include <cmath>
#include <exception>
#include <limits>

#include <boost/json.hpp>

#include "http/json_text.h"

namespace caravan::http {

namespace json = boost::json;

namespace {

constexpr std::size_t depth_max = 64;

}  // namespace

ApiResult<json::object> parse_object(std::string_view body) {
  if (body.empty()) return bad_request({}, "the body is empty; send a JSON object");
  json::parse_options options;
  options.max_depth = depth_max;
  boost::system::error_code error;
  json::value value = json::parse(json::string_view(body.data(), body.size()), error, {}, options);
  if (error) return bad_request({}, "the body is not JSON: {}", error.message());
  if (!value.is_object()) return bad_request({}, "the body is {}; send a JSON object", kind_name(value));
  return std::move(value.get_object());
}

const char* kind_name(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null:
      return "null";
    case json::kind::bool_:
      return value.get_bool() ? "true" : "false";
    case json::kind::int64:
    case json::kind::uint64:
    case json::kind::double_:
      return "a number";
    case json::kind::string:
      return "a string";
    case json::kind::array:
      return "an array";
    case json::kind::object:
      return "an object";
  }
  return "something else";
}

std::optional<std::int64_t> to_integer(const json::value& value) {
  if (value.is_int64()) return value.get_int64();
  if (value.is_uint64()) return std::numeric_limits<std::int64_t>::max();
  if (!value.is_double()) return std::nullopt;
  const double number = value.get_double();
  constexpr double exact_max = 9007199254740992.0;  // whole numbers beyond 2^53 are not exact any more
  if (!std::isfinite(number) || number != std::floor(number)) return std::nullopt;
  if (std::abs(number) > exact_max) return std::nullopt;
  return static_cast<std::int64_t>(number);
}

bool has_nul(std::string_view text) { return text.find('\0') != std::string_view::npos; }

const json::value* JsonFields::find(std::string_view name) const {
  const json::value* value = object_.if_contains(json::string_view(name.data(), name.size()));
  return value == nullptr || value->is_null() ? nullptr : value;
}

void JsonFields::read(std::string_view name, float& out) {
  const json::value* value = find(name);
  if (value == nullptr) return;
  if (!value->is_number()) return fail(name, "is {}; give a number", kind_name(*value));
  const auto number = value->to_number<double>();
  if (!std::isfinite(number) || std::abs(number) > static_cast<double>(std::numeric_limits<float>::max()))
    return fail(name, "is {}; give a number of usual size", number);
  out = static_cast<float>(number);
}

void JsonFields::read(std::string_view name, bool& out) {
  const json::value* value = find(name);
  if (value == nullptr) return;
  if (!value->is_bool()) return fail(name, "is {}; give true or false", kind_name(*value));
  out = value->get_bool();
}

void JsonFields::read(std::string_view name, std::string& out) {
  const json::value* value = find(name);
  if (value == nullptr) return;
  if (!value->is_string()) return fail(name, "is {}; give a string", kind_name(*value));
  if (has_nul(value->get_string())) return fail(name, "holds a NUL character");
  out = std::string(value->get_string());
}

void JsonFields::read(std::string_view name, std::int32_t& out) {
  const auto number = integer(name, std::numeric_limits<std::int32_t>::min(), std::numeric_limits<std::int32_t>::max());
  if (number) out = static_cast<std::int32_t>(*number);
}

std::optional<std::int64_t> JsonFields::integer(std::string_view name, std::int64_t low, std::int64_t high) {
  const json::value* value = find(name);
  if (value == nullptr) return std::nullopt;
  const auto number = to_integer(*value);
  if (!number) {
    const std::string shown = value->is_number() ? to_text(*value) : std::string(kind_name(*value));
    fail(name, "is {}; give a whole number", shown);
    return std::nullopt;
  }
  if (*number < low || *number > high) {
    fail(name, "is {}; give {} to {}", *number, low, high);
    return std::nullopt;
  }
  return number;
}

}  // namespace caravan::http
