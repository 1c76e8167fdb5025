#include "http/routes.h"

#include <array>

#include "http/admin.h"
#include "http/completions.h"
#include "http/embeddings.h"
#include "http/health.h"
#include "http/home.h"
#include "http/metrics.h"
#include "http/models.h"
#include "http/status.h"
#include "http/tokenization.h"

namespace caravan::http {
namespace {

constexpr std::array route_table = {
    Route{Method::get, "/", Access::open, Quick{answer_home}},
    Route{Method::post, "/v1/chat/completions", Access::key, Conversation{answer_chat}},
    Route{Method::post, "/v1/completions", Access::key, Conversation{answer_completion}},
    Route{Method::post, "/v1/embeddings", Access::key, Conversation{answer_embeddings}},
    Route{Method::get, "/v1/models", Access::key, Work{answer_models}},
    Route{Method::get, "/v1/models/", Access::key, Work{answer_model}},
    Route{Method::get, "/health", Access::open, Quick{answer_health}},
    Route{Method::get, "/metrics", Access::open, Quick{answer_metrics}},
    Route{Method::get, "/props", Access::key, Work{answer_props}},
    Route{Method::get, "/slots", Access::key, Work{answer_slots}},
    Route{Method::post, "/tokenize", Access::key, Work{answer_tokenize}},
    Route{Method::post, "/detokenize", Access::key, Work{answer_detokenize}},
    Route{Method::post, "/apply-template", Access::key, Work{answer_apply_template}},
    Route{Method::get, "/caravan/v1/memory", Access::admin, Work{answer_memory}},
    Route{Method::get, "/caravan/v1/cache", Access::admin, Work{answer_cache}},
    Route{Method::get, "/caravan/v1/sessions", Access::admin, Work{answer_sessions}},
    Route{Method::get, "/caravan/v1/cluster", Access::admin, Quick{answer_cluster}},
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

std::span<const Route> routes() { return route_table; }

Found find_route(Method method, std::string_view path) {
  constexpr std::string_view version = "/v1";
  Found found;
  for (const Route& route : route_table) {
    // /v1/models and the like also answer without /v1, as llama-server does.
    const bool versioned = route.path.starts_with(version);
    if (!fits(route.path, path) && !(versioned && fits(route.path.substr(version.size()), path))) continue;
    if (route.method == method) return {&route, {}};
    if (!found.allow.empty()) found.allow += ", ";
    found.allow += name_of(route.method);
  }
  if (!found.allow.empty()) found.allow += ", OPTIONS";
  return found;
}

}  // namespace caravan::http
