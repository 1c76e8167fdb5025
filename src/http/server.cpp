#include "http/server.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <ctime>
#include <list>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "base/log.h"
#include "http/connection.h"
#include "http/state.h"
#include "http/wakeups.h"
#include "http/workers.h"

namespace caravan::http {

namespace asio = boost::asio;
using asio::ip::tcp;

namespace {

constexpr auto with_error = asio::as_tuple(asio::use_awaitable);

Result<tcp::acceptor> listen(asio::io_context& context, const ServerOptions& options) {
  boost::system::error_code error;
  tcp::resolver resolver(context);
  const auto found = resolver.resolve(options.host, std::to_string(options.port), tcp::resolver::passive, error);
  if (error || found.empty())
    return fail(ErrorCode::invalid_argument, "--host {}: no such address ({})", options.host, error.message());
  const tcp::endpoint endpoint = found.begin()->endpoint();
  tcp::acceptor acceptor(context);
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error)
    return fail(ErrorCode::io, "cannot listen on {}:{}: {}; choose another --port, or 0 for any free one", options.host,
                options.port, error.message());
  return acceptor;
}

std::string host_and_port(const tcp::endpoint& endpoint) {
  const auto address = endpoint.address();
  return fmt::format(fmt::runtime(address.is_v6() ? "[{}]:{}" : "{}:{}"), address.to_string(), endpoint.port());
}

}  // namespace

class Server::Network {
 public:
  Network(ServerOptions options, prometheus::Registry& registry)
      : workers_(options.workers),
        state_{.options = std::move(options),
               .registry = registry,
               .metrics = HttpMetrics(registry),
               .workers = workers_,
               .wakeups = std::make_shared<Wakeups>(context_.get_executor()),
               .node_id = {},
               .serving = {}} {}
  ~Network() { state_.wakeups->close(); }
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  Status bind();
  void run();
  void begin_drain();
  void stop();

  asio::io_context& context() { return context_; }
  ServerState& state() { return state_; }
  [[nodiscard]] const tcp::endpoint& endpoint() const { return endpoint_; }

 private:
  asio::awaitable<void> accept();
  asio::awaitable<void> converse(tcp::socket socket);
  asio::awaitable<void> drain();
  asio::awaitable<void> listen_for_signals();

  asio::io_context context_{1};
  Workers workers_;
  ServerState state_;
  tcp::acceptor acceptor_{context_};
  tcp::endpoint endpoint_;
  asio::signal_set signals_{context_};
  asio::steady_timer drain_timer_{context_};
  std::list<Connection*> connections_;
  bool stopped_ = false;
};

Status Server::Network::bind() {
  auto acceptor = listen(context_, state_.options);
  if (!acceptor) return std::unexpected(acceptor.error());
  acceptor_ = std::move(*acceptor);
  boost::system::error_code error;
  endpoint_ = acceptor_.local_endpoint(error);
  if (error) return fail(ErrorCode::io, "cannot find the bound port: {}", error.message());
  state_.node_id = state_.options.node_id.empty() ? host_and_port(endpoint_) : state_.options.node_id;
  if (state_.options.handle_signals) {
    signals_.add(SIGINT, error);
    if (!error) signals_.add(SIGTERM, error);
    if (error) return fail(ErrorCode::io, "cannot handle SIGINT and SIGTERM: {}", error.message());
  }
  return {};
}

void Server::Network::run() {
  asio::co_spawn(context_, accept(), asio::detached);
  if (state_.options.handle_signals) asio::co_spawn(context_, listen_for_signals(), asio::detached);
  context_.run();
}

asio::awaitable<void> Server::Network::accept() {
  asio::steady_timer pause(context_);
  while (acceptor_.is_open()) {
    auto [error, socket] = co_await acceptor_.async_accept(with_error);
    if (error == asio::error::operation_aborted) co_return;
    if (error) {  // out of descriptors, most likely: let others close theirs
      log::warn("accept failed: {}", error.message());
      pause.expires_after(std::chrono::milliseconds(100));
      co_await pause.async_wait(with_error);
      continue;
    }
    if (connections_.size() >= state_.options.connections_max) {
      boost::system::error_code ignored;
      constexpr std::string_view full =
          "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nRetry-After: 1\r\nConnection: close\r\n\r\n";
      socket.non_blocking(true, ignored);
      socket.write_some(asio::buffer(full), ignored);
      state_.metrics.answered("other", 503);
      continue;
    }
    asio::co_spawn(context_, converse(std::move(socket)), asio::detached);
  }
}

asio::awaitable<void> Server::Network::converse(tcp::socket socket) {
  Connection connection(std::move(socket), state_);
  const auto place = connections_.insert(connections_.end(), &connection);
  try {
    co_await connection.serve();
  } catch (const std::exception& exception) {
    log::error("a connection failed: {}", exception.what());
  }
  connections_.erase(place);
}

asio::awaitable<void> Server::Network::listen_for_signals() {
  while (!stopped_) {
    const auto [error, signal] = co_await signals_.async_wait(with_error);
    if (error) co_return;
    if (state_.phase.load() == Phase::draining || state_.phase.load() == Phase::loading) {
      stop();
    } else {
      log::info("draining: running requests have {:.0f} s; interrupt again to stop at once",
                seconds(state_.options.drain_timeout));
      begin_drain();
    }
  }
}

void Server::Network::begin_drain() {
  if (state_.phase.exchange(Phase::draining) == Phase::draining) return;
  asio::co_spawn(context_, drain(), asio::detached);
}

asio::awaitable<void> Server::Network::drain() {
  const TimePoint deadline = Clock::now() + state_.options.drain_timeout;
  while (state_.conversations > 0 && Clock::now() < deadline && !stopped_) {
    drain_timer_.expires_after(std::chrono::milliseconds(20));
    co_await drain_timer_.async_wait(with_error);
  }
  if (state_.conversations > 0) log::warn("{} requests were cut: the drain time is over", state_.conversations);
  stop();
}

// Closes everything that is open; the context's run() returns when the last coroutine has ended.
void Server::Network::stop() {
  stopped_ = true;
  state_.phase = Phase::draining;
  boost::system::error_code ignored;
  acceptor_.close(ignored);
  signals_.cancel(ignored);
  drain_timer_.cancel();
  for (Connection* connection : connections_) connection->abort();
}

Result<std::unique_ptr<Server>> Server::create(ServerOptions options, prometheus::Registry& registry) {
  if (auto valid = validate(options); !valid) return std::unexpected(valid.error());
  auto network = std::make_unique<Network>(std::move(options), registry);
  if (auto bound = network->bind(); !bound) return std::unexpected(bound.error());
  return std::unique_ptr<Server>(new Server(std::move(network)));
}

Server::Server(std::unique_ptr<Network> network) : network_(std::move(network)) {}
Server::~Server() = default;

void Server::set_loading(float progress) { network_->state().loading = std::clamp(progress, 0.0F, 1.0F); }

void Server::set_model(const engine::Model& model, const engine::ChatTemplate* chat_template, engine::Engine& engine) {
  asio::post(network_->context(), [network = network_.get(), &model, chat_template, &engine] {
    ServerState& state = network->state();
    state.serving = Serving{&model, chat_template, &engine, std::time(nullptr)};
    Phase loading = Phase::loading;
    state.phase.compare_exchange_strong(loading, Phase::ready);
  });
}

void Server::run() { network_->run(); }

void Server::drain() {
  asio::post(network_->context(), [network = network_.get()] { network->begin_drain(); });
}

void Server::stop() {
  asio::post(network_->context(), [network = network_.get()] { network->stop(); });
}

std::uint16_t Server::port() const { return network_->endpoint().port(); }
std::string Server::url() const { return "http://" + host_and_port(network_->endpoint()); }

}  // namespace caravan::http
