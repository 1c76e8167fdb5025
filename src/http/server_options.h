// What the HTTP server can be told; validated in one place, before anything is bound.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace caravan::http {

// The name is the tenant: it goes into namespaces, metrics and logs; the secret never does.
struct ApiKey {
  std::string name;
  std::string secret;
};

struct ServerOptions {
  std::string host = "127.0.0.1";  // an address or a name that resolves to one
  std::uint16_t port = 8080;       // 0: any free port; Server::port() says which
  std::string node_id;             // `caravan.node` and X-Caravan-Node; empty: host:port
  std::string role = "both";       // what /caravan/v1/cluster reports

  std::vector<ApiKey> api_keys;          // empty: no key is asked for, and there is one tenant, ""
  std::optional<std::string> admin_key;  // none: admin calls answer to loopback peers alone
  std::string cors_origin;               // Access-Control-Allow-Origin; empty: no CORS headers

  std::size_t body_bytes_max = std::size_t{32} << 20;     // one request's body; more: 413
  std::size_t bodies_bytes_max = std::size_t{256} << 20;  // bodies being read, of all connections; more: 429
  std::uint32_t header_bytes_max = 32U << 10;             // more: 431
  std::uint32_t connections_max = 1024;                   // more: 503 and closed at once
  std::size_t stream_bytes_max = std::size_t{4}
                                 << 20;  // text and logprobs a slow reader may have waiting; more: cancelled
  std::uint32_t choices_max = 128;       // prompts times `n` in one request
  std::uint32_t inputs_max = 2048;       // texts in one embeddings request

  Duration keep_alive_interval = std::chrono::seconds(10);  // between `: keep-alive` lines of a stream that waits
  Duration header_timeout = std::chrono::seconds(20);       // from a request's first byte to the end of its header
  Duration body_timeout = std::chrono::seconds(120);        // for the whole body
  Duration idle_timeout = std::chrono::seconds(75);         // a kept-alive connection without a request
  Duration write_timeout = std::chrono::seconds(30);        // a write that makes no progress: the client is gone
  Duration drain_timeout = std::chrono::seconds(30);        // drain() lets running requests go on for so long
  std::uint32_t workers = 2;                                // threads that parse, render templates and tokenize

  bool handle_signals = false;  // SIGINT and SIGTERM drain, a second one stops
};

// Errors: invalid_argument, one line that carries the wrong value and the flag's name.
Status validate(const ServerOptions& options);

// `name:key` a line; empty lines and lines that begin with # do not count. Errors: io, invalid_argument (file and
// line).
Result<std::vector<ApiKey>> read_api_keys(const std::filesystem::path& file);

}  // namespace caravan::http
