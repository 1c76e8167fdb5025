// A small HTTP/1.1 client for load: one connection a request, plain or TLS, bodies handed on as they arrive.
// For one thread: the one that runs the io_context.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include <boost/asio/awaitable.hpp>

#include "base/clock.h"
#include "base/result.h"

namespace boost::asio {
class io_context;
}

namespace caravan::cli::bench {

struct Url {
  bool tls = false;
  std::string host;
  std::string port;
  std::string path;  // before /v1; no slash at its end, mostly empty
};

// "http://host:8080", with or without a path that ends in /v1. Errors: invalid_argument.
Result<Url> parse_url(std::string_view text);

struct HttpAnswer {
  unsigned status = 0;
  std::string body;  // empty where a sink took it
};

class HttpClient {
 public:
  // `timeout` bounds a request from its connection to its last byte. An empty key sends none.
  HttpClient(boost::asio::io_context& context, Url url, std::string api_key, Duration timeout);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  struct Watch {
    std::function<void()> connected;                // right before the request is sent
    std::function<void(std::string_view)> arrived;  // pieces of the body of a 200; without it the body is collected
  };
  // `path` follows the URL's own. An empty body is a GET, anything else a POST of JSON. Errors: io.
  boost::asio::awaitable<Result<HttpAnswer>> send(const std::string& path, std::string body, Watch watch);

 private:
  struct Connections;
  std::unique_ptr<Connections> connections_;
};

}  // namespace caravan::cli::bench
