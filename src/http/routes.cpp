#include "http/routes.h"

#include <array>

#include "http/health.h"
#include "http/home.h"

namespace caravan::http {
namespace {

constexpr std::array kRoutes = {
    Route{Method::get, "/", Access::open, Quick{answer_home}},
    Route{Method::get, "/health", Access::open, Quick{answer_health}},
};

bool fits(std::string_view pattern, std::string_view path) {
  if (pattern.size() > 1 && pattern.ends_with('/')) return path.size() > pattern.size() && path.starts_with(pattern);
  return path == pattern;
}

std::string_view name_of(Method method) {
  switch (method) {
    case Method::get:
      return "GET, HEAD";
    case Method::post:
      return "POST";
    case Method::put:
      return "PUT";
    case Method::del:
      return "DELETE";
    case Method::options:
      return "OPTIONS";
    case Method::other:
      return "";
  }
  return "";
}

}  // namespace

std::span<const Route> routes() { return kRoutes; }

Found find_route(Method method, std::string_view path) {
  constexpr std::string_view kVersion = "/v1";
  Found found;
  for (const Route& route : kRoutes) {
    // /v1/models and the like also answer without /v1, as llama-server does.
    const bool versioned = route.path.starts_with(kVersion);
    if (!fits(route.path, path) && !(versioned && fits(route.path.substr(kVersion.size()), path))) continue;
    if (route.method == method) return {&route, {}};
    if (!found.allow.empty()) found.allow += ", ";
    found.allow += name_of(route.method);
  }
  if (!found.allow.empty()) found.allow += ", OPTIONS";
  return found;
}

}  // namespace caravan::http
