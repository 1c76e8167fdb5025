// How a connection lives: read a request, find and admit it, have it answered, watch the client meanwhile.
// Reading is in connection_read.cpp.
#include "http/connection.h"

#include <chrono>
#include <exception>
#include <string>
#include <utility>
#include <variant>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/http/status.hpp>

#include "base/log.h"
#include "http/connection_socket.h"
#include "http/routes.h"
#include "http/workers.h"

namespace caravan::http {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
using namespace asio::experimental::awaitable_operators;

constexpr auto with_error = asio::as_tuple(asio::use_awaitable);
constexpr std::size_t pipelined_bytes_max = std::size_t{64} << 10;
// Of the kernel, for one connection: what a client that does not read can make it hold.
constexpr int send_buffer_bytes = 256 << 10;
constexpr auto linger_time = std::chrono::seconds(2);

bool is_loopback(const asio::ip::tcp::socket& socket) {
  boost::system::error_code error;
  const auto endpoint = socket.remote_endpoint(error);
  if (error) return false;
  const auto address = endpoint.address();
  if (address.is_v6() && address.to_v6().is_v4_mapped())
    return asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6()).is_loopback();
  return address.is_loopback();
}

}  // namespace

Connection::Connection(asio::ip::tcp::socket socket, ServerState& state)
    : state_(state), peer_loopback_(is_loopback(socket)) {
  boost::system::error_code ignored;
  socket.set_option(asio::ip::tcp::no_delay(true), ignored);
  socket.set_option(asio::socket_base::send_buffer_size(send_buffer_bytes), ignored);
  socket_ = std::make_unique<Socket>(std::move(socket));
  state_.metrics.connections().Increment();
}

Connection::~Connection() {
  drop_body();
  state_.metrics.connections().Decrement();
}

asio::awaitable<void> Connection::serve() {
  while (keep_alive_) {
    const Reading reading = co_await read_request();
    if (reading == Reading::closed) break;
    if (reading == Reading::request) co_await answer();
    route_ = nullptr;
    drop_body();
  }
  boost::system::error_code ignored;
  socket_->stream.socket().shutdown(asio::ip::tcp::socket::shutdown_both, ignored);
}

void Connection::abort() {
  keep_alive_ = false;
  socket_->stream.close();
}

asio::awaitable<void> Connection::answer() {
  ++state_.conversations;
  failed_ = false;
  co_await run_handler();
  --state_.conversations;
  if (stream_begun_) state_.metrics.streams().Decrement();
  if (failed_ && !answered_ && !stream_begun_)
    co_await send(error_response(simple_error(500, "this request failed inside the server; its log says why")));
  else if (failed_)
    abort();
}

asio::awaitable<void> Connection::run_handler() {
  if (std::holds_alternative<Conversation>(route_->handler)) {
    auto both = converse() || watch_client();
    const auto first = co_await std::move(both);
    if (first.index() == 0) co_return;
    state_.metrics.clients_gone().Increment();
    if (!stream_begun_) state_.metrics.answered(route_->path, 499);
    abort();
    co_return;
  }
  try {
    if (const auto* quick = std::get_if<Quick>(&route_->handler)) {
      co_await send(quick->answer(request_, state_));
    } else if (const auto* work = std::get_if<Work>(&route_->handler)) {
      auto task = [this, work, serving = *state_.serving] { return work->answer(request_, serving, state_); };
      HttpResponse response = co_await state_.workers.run(std::move(task));
      co_await send(std::move(response));
    }
  } catch (const std::exception& exception) {
    log::error("{} failed: {}", route_->path, exception.what());
    failed_ = true;
  }
}

// Ends without an exception whatever the handler does, so that the watch beside it ends too.
asio::awaitable<void> Connection::converse() {
  try {
    co_await std::get<Conversation>(route_->handler).answer(*this);
  } catch (const boost::system::system_error& error) {
    if (error.code() == asio::error::operation_aborted) co_return;  // the client has gone
    log::error("{} failed: {}", route_->path, error.what());
    failed_ = true;
  } catch (const std::exception& exception) {
    log::error("{} failed: {}", route_->path, exception.what());
    failed_ = true;
  }
}

// Returns when the client closes or half-closes its side, or resets. What it sends meanwhile is its next request; a
// client that sends more than a little of that is not waiting for its answer.
asio::awaitable<void> Connection::watch_client() {
  while (socket_->buffer.size() < pipelined_bytes_max) {
    socket_->stream.expires_never();
    const auto [error, bytes] = co_await socket_->stream.async_read_some(socket_->buffer.prepare(4096), with_error);
    socket_->buffer.commit(bytes);
    if (error) co_return;
  }
}

std::string Connection::header_text(const HttpResponse& response, std::string_view framing) const {
  const auto reason = beast::http::obsolete_reason(static_cast<beast::http::status>(response.status));
  std::string text = fmt::format("HTTP/1.1 {} {}\r\nServer: caravan\r\nX-Caravan-Node: {}\r\nConnection: {}\r\n{}",
                                 response.status, std::string_view(reason.data(), reason.size()), state_.node_id,
                                 keep_alive_ ? "keep-alive" : "close", framing);
  if (!response.content_type.empty()) text += fmt::format("Content-Type: {}\r\n", response.content_type);
  if (const std::string& origin = state_.options.cors_origin; !origin.empty()) {
    text += fmt::format("Access-Control-Allow-Origin: {}\r\nAccess-Control-Expose-Headers: X-Caravan-Node\r\n", origin);
    if (origin != "*") text += "Vary: Origin\r\n";
  }
  for (const auto& [name, value] : response.headers) text += fmt::format("{}: {}\r\n", name, value);
  text += "\r\n";
  return text;
}

asio::awaitable<void> Connection::send(HttpResponse response) {
  if (state_.phase.load() == Phase::draining) keep_alive_ = false;
  answered_ = true;
  const std::string length =
      response.status == 204 ? std::string{} : fmt::format("Content-Length: {}\r\n", response.body.size());
  std::string text = header_text(response, length);
  if (!request_.head) text += response.body;
  state_.metrics.answered(route_ != nullptr ? route_->path : "other", response.status);
  const bool written = co_await write(std::move(text));
  if (!written) abort();
}

asio::awaitable<bool> Connection::write_events(std::string text) {
  std::string out;
  const bool chunked = version_ >= 11;
  if (!stream_begun_) {
    stream_begun_ = true;
    if (!chunked || state_.phase.load() == Phase::draining) keep_alive_ = false;
    const HttpResponse head{.status = 200,
                            .body = {},
                            .content_type = "text/event-stream; charset=utf-8",
                            .headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}}};
    out = header_text(head, chunked ? "Transfer-Encoding: chunked\r\n" : "");
    state_.metrics.answered(route_->path, 200);
    state_.metrics.streams().Increment();
  }
  if (!text.empty()) out += chunked ? fmt::format("{:x}\r\n{}\r\n", text.size(), text) : text;
  const bool written = co_await write(std::move(out));
  if (!written) abort();
  co_return written;
}

asio::awaitable<void> Connection::end_events() {
  if (version_ < 11) co_return;  // closing the connection ends it
  const bool written = co_await write("0\r\n\r\n");
  if (!written) abort();
}

asio::awaitable<bool> Connection::write(std::string text) {
  std::size_t done = 0;
  while (done < text.size()) {
    socket_->stream.expires_after(state_.options.write_timeout);
    const auto rest = asio::buffer(text.data() + done, text.size() - done);
    const auto [error, bytes] = co_await socket_->stream.async_write_some(rest, with_error);
    if (error) co_return false;
    done += bytes;
  }
  state_.metrics.sent(done);
  co_return true;
}

// A close with unread bytes would reset the connection, and the client might never see why it was refused.
asio::awaitable<void> Connection::linger() {
  boost::system::error_code ignored;
  socket_->stream.socket().shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
  socket_->stream.expires_after(linger_time);
  while (true) {
    socket_->buffer.clear();
    const auto [error, bytes] = co_await socket_->stream.async_read_some(socket_->buffer.prepare(65536), with_error);
    if (error) co_return;
  }
}

void Connection::drop_body() {
  state_.bodies_bytes -= std::exchange(body_bytes_, 0);
  request_.body = {};
}

}  // namespace caravan::http
