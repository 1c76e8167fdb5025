// Reading one request: its header, whether it may go on, then its body, each within its limits.
#include <chrono>
#include <string>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/url/parse.hpp>
#include <boost/url/url_view.hpp>

#include "http/connection.h"
#include "http/connection_socket.h"
#include "http/json_text.h"
#include "http/routes.h"

namespace caravan::http {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;

constexpr auto with_error = asio::as_tuple(asio::use_awaitable);

Method to_method(beast::http::verb verb) {
  switch (verb) {
    case beast::http::verb::get:
    case beast::http::verb::head:
      return Method::get;
    case beast::http::verb::post:
      return Method::post;
    case beast::http::verb::put:
      return Method::put;
    case beast::http::verb::delete_:
      return Method::del;
    case beast::http::verb::options:
      return Method::options;
    default:
      return Method::other;
  }
}

HttpResponse preflight(const HttpRequest& request, const ServerOptions& options) {
  HttpResponse response{.status = 204, .body = {}, .content_type = {}, .headers = {}};
  if (options.cors_origin.empty()) return response;
  response.headers.emplace_back("Access-Control-Allow-Methods", "GET, POST, PUT, DELETE, OPTIONS");
  const std::string_view asked = request.header("access-control-request-headers");
  response.headers.emplace_back("Access-Control-Allow-Headers",
                                asked.empty() ? "authorization, content-type" : std::string(asked));
  response.headers.emplace_back("Access-Control-Max-Age", "86400");
  return response;
}

}  // namespace

asio::awaitable<Connection::Reading> Connection::read_request() {
  Socket& socket = *socket_;
  request_ = {};
  stream_begun_ = false;
  answered_ = false;
  if (socket.buffer.size() == 0) {
    socket.stream.expires_after(state_.options.idle_timeout);
    const auto [error, bytes] = co_await socket.stream.async_read_some(socket.buffer.prepare(4096), with_error);
    if (error) co_return Reading::closed;
    socket.buffer.commit(bytes);
  }
  socket.parser.emplace();
  socket.parser->header_limit(state_.options.header_bytes_max);
  socket.parser->body_limit(state_.options.body_bytes_max);
  socket.stream.expires_after(state_.options.header_timeout);
  const auto [error, bytes] =
      co_await beast::http::async_read_header(socket.stream, socket.buffer, *socket.parser, with_error);
  if (error == beast::http::error::header_limit) {
    const Reading refused = co_await read_failed(
        431, fmt::format("the request's header is longer than {} bytes", state_.options.header_bytes_max));
    co_return refused;
  }
  if (error == beast::http::error::body_limit) {
    const Reading refused = co_await read_failed(
        413, fmt::format("the body is longer than {} bytes; send a smaller request", state_.options.body_bytes_max));
    co_return refused;
  }
  if (error && error.category() != beast::http::make_error_code(beast::http::error::bad_method).category())
    co_return Reading::closed;
  if (error == beast::http::error::end_of_stream || error == beast::http::error::partial_message)
    co_return Reading::closed;
  if (error) {
    const Reading refused = co_await read_failed(400, fmt::format("that is not HTTP/1.1: {}", error.message()));
    co_return refused;
  }
  take_header();
  auto route = find_route();
  if (!route) {
    co_await refuse(std::move(route.error()));
    co_return Reading::refused;
  }
  if (request_.method == Method::options) {
    keep_alive_ = keep_alive_ && socket.parser->is_done();
    co_await send(preflight(request_, state_.options));
    co_return Reading::refused;
  }
  route_ = *route;
  const Reading reading = co_await read_body();
  co_return reading;
}

void Connection::take_header() {
  const auto& message = socket_->parser->get();
  version_ = message.version();
  keep_alive_ = message.keep_alive() && state_.phase.load() != Phase::draining;
  request_.method = to_method(message.method());
  request_.head = message.method() == beast::http::verb::head;
  request_.peer_loopback = peer_loopback_;
  for (const auto& field : message)
    request_.headers.emplace_back(std::string(field.name_string()), std::string(field.value()));
  if (const auto url = boost::urls::parse_uri_reference(message.target())) {
    request_.path = url->path();
    request_.query = std::string(url->encoded_query());
  }
}

// Null for OPTIONS, which every path has.
ApiResult<const Route*> Connection::find_route() {
  if (request_.path.empty()) {
    const auto target = socket_->parser->get().target();
    return bad_request({}, "\"{}\" is not a path", valid_utf8(std::string_view(target.data(), target.size())));
  }
  if (request_.method == Method::options) return nullptr;
  const Found found = http::find_route(request_.method, request_.path);
  if (found.route == nullptr && found.allow.empty())
    return std::unexpected(simple_error(404, fmt::format("there is no {}; / lists what there is", request_.path)));
  if (found.route == nullptr)
    return std::unexpected(simple_error(405, fmt::format("{} answers to {} alone", request_.path, found.allow)));
  auto tenant = admit(request_, found.route->access, state_.options);
  if (!tenant) return std::unexpected(std::move(tenant.error()));
  request_.tenant = std::move(*tenant);
  if (std::holds_alternative<Quick>(found.route->handler)) return found.route;
  switch (state_.phase.load()) {
    case Phase::loading:
      return std::unexpected(simple_error(503, "Loading model; try again soon"));
    case Phase::draining:
      return std::unexpected(simple_error(503, "this node is draining; try another or try again"));
    case Phase::ready:
      break;
  }
  return found.route;
}

asio::awaitable<Connection::Reading> Connection::read_body() {
  Socket& socket = *socket_;
  auto& parser = *socket.parser;
  if (!parser.is_done() && same_token(request_.header("expect"), "100-continue")) {
    const bool written = co_await write("HTTP/1.1 100 Continue\r\n\r\n");
    if (!written) co_return Reading::closed;
  }
  const auto deadline = Clock::now() + state_.options.body_timeout;
  while (!parser.is_done()) {
    socket.stream.expires_at(deadline);
    const auto [error, bytes] = co_await beast::http::async_read_some(socket.stream, socket.buffer, parser, with_error);
    const std::size_t held = parser.get().body().size();
    state_.bodies_bytes += held - body_bytes_;
    body_bytes_ = held;
    if (error == beast::http::error::body_limit) {
      const Reading refused = co_await read_failed(
          413, fmt::format("the body is longer than {} bytes; send a smaller request", state_.options.body_bytes_max));
      co_return refused;
    }
    if (error == beast::http::error::bad_chunk || error == beast::http::error::bad_chunk_extension) {
      const Reading refused =
          co_await read_failed(400, "the body is not in the chunked encoding that its header names");
      co_return refused;
    }
    if (error) co_return Reading::closed;
    if (state_.bodies_bytes > state_.options.bodies_bytes_max) {
      const Reading refused = co_await read_failed(429, "too many large requests are being read; try again");
      co_return refused;
    }
  }
  request_.body = std::move(parser.get().body());
  state_.metrics.received(request_.body.size());
  co_return Reading::request;
}

asio::awaitable<Connection::Reading> Connection::read_failed(unsigned status, std::string message) {
  co_await refuse(simple_error(status, std::move(message)));
  co_return Reading::refused;
}

asio::awaitable<void> Connection::refuse(ApiError error) {
  const bool done = socket_->parser->is_done();
  keep_alive_ = keep_alive_ && done;
  co_await send(error_response(error));
  if (!done) co_await linger();
}

}  // namespace caravan::http
