// One HTTP request and response as plain values, so that handlers need neither sockets nor Beast.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace caravan::http {

enum class Method : std::uint8_t { get, post, put, del, options, other };

using Headers = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  Method method = Method::get;
  bool head = false;  // a HEAD request, answered as GET without its body
  std::string path;   // percent-decoded, without the query
  std::string query;  // as it came, without '?'
  Headers headers;
  std::string body;
  std::string tenant;          // the name of the API key it came with; empty without keys
  bool peer_loopback = false;  // the other end of the socket is this host

  // The first header of that name, letter case aside; empty: none.
  [[nodiscard]] std::string_view header(std::string_view name) const;
};

struct HttpResponse {
  unsigned status = 200;
  std::string body;
  std::string content_type = "application/json";
  Headers headers;
};

// Letter case aside, for header names and values.
bool same_token(std::string_view left, std::string_view right);

}  // namespace caravan::http
