#include "http/access.h"

#include <cstddef>
#include <string_view>

namespace caravan::http {
namespace {

// Takes the same time whatever differs; only the length of the presented text shows.
bool same_secret(std::string_view presented, std::string_view secret) {
  unsigned char difference = presented.size() == secret.size() ? 0 : 1;
  for (std::size_t i = 0; i < presented.size(); ++i)
    difference |= static_cast<unsigned char>(presented[i] ^ secret[secret.empty() ? 0 : i % secret.size()]);
  return difference == 0;
}

std::string_view presented_key(const HttpRequest& request) {
  const std::string_view authorization = request.header("authorization");
  constexpr std::string_view scheme = "Bearer ";
  if (authorization.size() > scheme.size() && same_token(authorization.substr(0, scheme.size()), scheme))
    return authorization.substr(scheme.size());
  return request.header("x-api-key");
}

std::string_view without_port(std::string_view host) {
  if (host.starts_with('[')) return host.substr(0, host.find(']') + 1);
  return host.substr(0, host.find(':'));
}

// A web page in a local browser also comes from loopback, and so does everything behind a local proxy: neither may pass
// for the person at the machine.
bool from_this_host(const HttpRequest& request) {
  if (!request.peer_loopback) return false;
  if (!request.header("forwarded").empty() || !request.header("x-forwarded-for").empty()) return false;
  const std::string_view host = request.header("host");
  const std::string_view name = without_port(host);
  if (!host.empty() && name != "localhost" && name != "[::1]" && !name.starts_with("127.")) return false;
  const std::string_view origin = request.header("origin");
  return origin.empty() || origin == std::string("http://").append(host);
}

std::unexpected<ApiError> unauthorized(std::string_view presented, std::string_view what) {
  const char* how = "send \"Authorization: Bearer KEY\" or \"x-api-key: KEY\"";
  if (presented.empty())
    return std::unexpected(simple_error(401, fmt::format("no {}; {}", what, how), "invalid_api_key"));
  return std::unexpected(simple_error(401, fmt::format("that is not a known {}; {}", what, how), "invalid_api_key"));
}

}  // namespace

ApiResult<std::string> admit(const HttpRequest& request, Access access, const ServerOptions& options) {
  if (access == Access::open) return std::string{};
  const std::string_view presented = presented_key(request);
  if (access == Access::admin) {
    if (options.admin_key) {
      if (!same_secret(presented, *options.admin_key)) return unauthorized(presented, "admin key");
    } else if (!from_this_host(request)) {
      return std::unexpected(simple_error(
          403,
          "without an admin key this call answers to direct callers on the same host alone; start with --admin-key"));
    }
    return std::string{};
  }
  if (options.api_keys.empty()) return std::string{};
  const ApiKey* found = nullptr;
  for (const ApiKey& key : options.api_keys)  // all of them, so that the time does not tell which one
    if (same_secret(presented, key.secret)) found = &key;
  if (found == nullptr) return unauthorized(presented, "API key");
  return found->name;
}

}  // namespace caravan::http
