#include "http/server_options.h"

#include <algorithm>
#include <cctype>
#include <fstream>

namespace caravan::http {
namespace {

// A secret travels in a header: visible ASCII without blanks.
bool fits_header(const std::string& secret) {
  return std::ranges::all_of(secret, [](unsigned char c) { return c > ' ' && c < 0x7f; });
}

bool is_name(const std::string& name) {
  return !name.empty() && name.size() <= 64 && std::ranges::all_of(name, [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.' || c == '@';
  });
}

Status validate_key(const ApiKey& key) {
  if (!is_name(key.name))
    return fail(ErrorCode::invalid_argument,
                "an API key's name is \"{}\"; use 1 to 64 letters, digits, '-', '_', '.' or '@'", key.name);
  if (key.secret.empty() || !fits_header(key.secret))
    return fail(ErrorCode::invalid_argument,
                "the API key of \"{}\" is empty or holds a blank, control or non-ASCII character; it must fit a header",
                key.name);
  return {};
}

std::string trimmed(const std::string& text) {
  const auto first = text.find_first_not_of(" \t\r");
  if (first == std::string::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

}  // namespace

Status validate(const ServerOptions& options) {
  for (const ApiKey& key : options.api_keys) {
    if (auto valid = validate_key(key); !valid) return valid;
    const auto same = [&key](const ApiKey& other) { return other.secret == key.secret && other.name != key.name; };
    if (const auto other = std::ranges::find_if(options.api_keys, same); other != options.api_keys.end())
      return fail(ErrorCode::invalid_argument, "\"{}\" and \"{}\" have the same API key; give each its own", key.name,
                  other->name);
  }
  if (options.admin_key && (options.admin_key->empty() || !fits_header(*options.admin_key)))
    return fail(ErrorCode::invalid_argument,
                "the admin key is empty or holds a blank, control or non-ASCII character; it must fit a header");
  if (options.host.empty()) return fail(ErrorCode::invalid_argument, "--host is empty; give an address like 127.0.0.1");
  if (!fits_header(options.node_id))
    return fail(ErrorCode::invalid_argument, "the node id \"{}\" holds a blank, control or non-ASCII character",
                options.node_id);
  if (!fits_header(options.cors_origin))
    return fail(ErrorCode::invalid_argument,
                "the CORS origin \"{}\" holds a blank; give one origin like https://example.org, or *",
                options.cors_origin);
  if (options.workers < 1 || options.workers > 64)
    return fail(ErrorCode::invalid_argument, "{} HTTP workers; give 1 to 64", options.workers);
  if (options.connections_max < 1) return fail(ErrorCode::invalid_argument, "0 connections allowed; give 1 or more");
  if (options.body_bytes_max < 1024)
    return fail(ErrorCode::invalid_argument, "the body limit is {} bytes; give 1024 or more", options.body_bytes_max);
  if (options.bodies_bytes_max < options.body_bytes_max)
    return fail(ErrorCode::invalid_argument, "the limit for all bodies, {} bytes, is below that for one, {}",
                options.bodies_bytes_max, options.body_bytes_max);
  if (options.header_bytes_max < 1024)
    return fail(ErrorCode::invalid_argument, "the header limit is {} bytes; give 1024 or more",
                options.header_bytes_max);
  if (options.choices_max < 1 || options.inputs_max < 1)
    return fail(ErrorCode::invalid_argument,
                "choices and inputs of one request are limited to {} and {}; give 1 or more", options.choices_max,
                options.inputs_max);
  const auto positive = [](Duration duration) { return duration >= std::chrono::milliseconds(1); };
  if (!positive(options.keep_alive_interval) || !positive(options.header_timeout) || !positive(options.body_timeout) ||
      !positive(options.idle_timeout) || !positive(options.write_timeout) || options.drain_timeout < Duration::zero())
    return fail(ErrorCode::invalid_argument, "an HTTP timeout or interval is zero or negative; give 1 ms or more");
  return {};
}

Result<std::vector<ApiKey>> read_api_keys(const std::filesystem::path& file) {
  std::ifstream stream(file);
  if (!stream) return fail(ErrorCode::io, "cannot read the API key file {}", file.string());
  std::vector<ApiKey> keys;
  std::string line;
  for (int number = 1; std::getline(stream, line); ++number) {
    line = trimmed(line);
    if (line.empty() || line.front() == '#') continue;
    const auto colon = line.find(':');
    if (colon == std::string::npos)
      return fail(ErrorCode::invalid_argument, "{}:{}: no ':'; write name:key", file.string(), number);
    ApiKey key{trimmed(line.substr(0, colon)), trimmed(line.substr(colon + 1))};
    if (auto valid = validate_key(key); !valid)
      return fail(ErrorCode::invalid_argument, "{}:{}: {}", file.string(), number, valid.error().message);
    keys.push_back(std::move(key));
  }
  if (keys.empty())
    return fail(ErrorCode::invalid_argument, "{} holds no API key; write name:key lines", file.string());
  return keys;
}

}  // namespace caravan::http
