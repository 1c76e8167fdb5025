// One client's connection: reads requests, finds their route, admits them, and lets the route's handler answer.
// Lives on the network thread, and only there. For http/ alone: Asio is in here.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "http/api_error.h"
#include "http/message.h"
#include "http/state.h"

namespace caravan::http {

struct Route;

class Connection {
 public:
  Connection(boost::asio::ip::tcp::socket socket, ServerState& state);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Serves requests until the connection is closed by either side.
  boost::asio::awaitable<void> serve();

  // Closes the socket: whatever is being awaited fails, a handler under way is cancelled.
  void abort();
  [[nodiscard]] bool idle() const { return route_ == nullptr; }

  // For handlers.
  [[nodiscard]] const HttpRequest& request() const { return request_; }
  [[nodiscard]] ServerState& state() { return state_; }
  // Once the body has been understood: a long answer need not hold it.
  void drop_body();
  boost::asio::awaitable<void> send(HttpResponse response);

  // A stream of server-sent events: begin, then any number of writes, then end. A write that fails (the client is gone,
  // or took nothing for write_timeout) closes the connection and returns false.
  boost::asio::awaitable<bool> write_events(std::string text);  // begins the response when it has not begun
  boost::asio::awaitable<void> end_events();
  void close_after_response() { keep_alive_ = false; }
  [[nodiscard]] bool stream_begun() const { return stream_begun_; }

 private:
  enum class Reading { request, refused, closed };
  struct Socket;

  boost::asio::awaitable<Reading> read_request();
  boost::asio::awaitable<Reading> read_body();
  boost::asio::awaitable<Reading> read_failed(unsigned status, std::string message);
  boost::asio::awaitable<void> refuse(ApiError error);
  void take_header();
  ApiResult<const Route*> find_route();
  boost::asio::awaitable<void> answer();
  boost::asio::awaitable<void> run_handler();
  boost::asio::awaitable<void> converse();
  boost::asio::awaitable<void> watch_client();
  boost::asio::awaitable<bool> write(std::string text);
  boost::asio::awaitable<void> linger();
  std::string header_text(const HttpResponse& response, std::string_view framing) const;

  ServerState& state_;
  std::unique_ptr<Socket> socket_;
  HttpRequest request_;
  const Route* route_ = nullptr;  // of the request being answered
  std::size_t body_bytes_ = 0;    // this connection's part of ServerState::bodies_bytes
  unsigned version_ = 11;
  bool keep_alive_ = true;
  bool peer_loopback_ = false;
  bool stream_begun_ = false;
  bool answered_ = false;
  bool failed_ = false;  // the handler threw
};

}  // namespace caravan::http
