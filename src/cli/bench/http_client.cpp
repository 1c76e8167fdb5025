#include "cli/bench/http_client.h"

#include <optional>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl/ssl_stream.hpp>
#include <boost/url/parse.hpp>
#include <boost/url/url_view.hpp>

namespace caravan::cli::bench {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

constexpr auto as_tuple = asio::as_tuple(asio::use_awaitable);
constexpr std::size_t body_bytes_max = std::size_t{64} << 20;

using Request = http::request<http::string_body>;

Error failed(std::string_view doing, const error_code& error, const Url& url, Duration timeout) {
  if (error == beast::error::timeout) {
    return {ErrorCode::io,
            fmt::format("{} {}:{}: nothing within {:.0f} s", doing, url.host, url.port, seconds(timeout))};
  }
  return {ErrorCode::io, fmt::format("{} {}:{}: {}", doing, url.host, url.port, error.message())};
}

}  // namespace

Result<Url> parse_url(std::string_view text) {
  const auto wrong = [&] {
    return fail(ErrorCode::invalid_argument, "{}: give a URL such as http://127.0.0.1:8080", text);
  };
  const auto parsed = boost::urls::parse_uri(text);
  if (!parsed || parsed->host().empty()) return wrong();
  Url url;
  url.tls = parsed->scheme() == "https";
  if (!url.tls && parsed->scheme() != "http") return wrong();
  url.host = parsed->host_address();
  url.port = parsed->has_port() && !parsed->port().empty() ? std::string(parsed->port()) : url.tls ? "443" : "80";
  url.path = parsed->encoded_path();
  while (url.path.ends_with('/')) url.path.pop_back();
  if (url.path.ends_with("/v1")) url.path.resize(url.path.size() - 3);
  return url;
}

struct HttpClient::Connections {
  Connections(asio::io_context& io, Url where, std::string key, Duration patience)
      : context(io), url(std::move(where)), api_key(std::move(key)), timeout(patience) {
    if (!url.tls) return;
    tls.emplace(asio::ssl::context::tls_client);
    error_code ignored;
    tls->set_default_verify_paths(ignored);
    tls->set_verify_mode(asio::ssl::verify_peer, ignored);
  }

  asio::awaitable<Result<HttpAnswer>> send(Request request, Watch watch);
  asio::awaitable<Result<HttpAnswer>> send_plain(Request& request, Watch& watch);
  asio::awaitable<Result<HttpAnswer>> send_tls(Request& request, Watch& watch);
  asio::awaitable<Result<void>> connect(beast::tcp_stream& stream);
  template <class Stream>
  asio::awaitable<Result<HttpAnswer>> exchange(Stream& stream, Request& request, Watch& watch);

  asio::io_context& context;
  Url url;
  std::string api_key;
  Duration timeout;
  std::optional<asio::ssl::context> tls;
  std::optional<tcp::resolver::results_type> resolved;
};

asio::awaitable<Result<void>> HttpClient::Connections::connect(beast::tcp_stream& stream) {
  if (!resolved) {
    tcp::resolver resolver(context);
    auto [error, found] = co_await resolver.async_resolve(url.host, url.port, as_tuple);
    if (error) co_return std::unexpected(failed("cannot resolve", error, url, timeout));
    resolved = std::move(found);
  }
  stream.expires_after(timeout);
  const auto [error, endpoint] = co_await stream.async_connect(*resolved, as_tuple);
  if (error) co_return std::unexpected(failed("cannot connect to", error, url, timeout));
  error_code ignored;
  stream.socket().set_option(tcp::no_delay(true), ignored);
  co_return Result<void>();
}

template <class Stream>
asio::awaitable<Result<HttpAnswer>> HttpClient::Connections::exchange(Stream& stream, Request& request, Watch& watch) {
  if (watch.connected) watch.connected();
  const auto [write_error, written] = co_await http::async_write(stream, request, as_tuple);
  if (write_error) co_return std::unexpected(failed("sending to", write_error, url, timeout));

  beast::flat_buffer buffer;
  http::response_parser<http::string_body> parser;
  parser.body_limit(boost::none);
  const auto [header_error, header_read] = co_await http::async_read_header(stream, buffer, parser, as_tuple);
  if (header_error) co_return std::unexpected(failed("waiting for", header_error, url, timeout));

  HttpAnswer answer{.status = parser.get().result_int(), .body = {}};
  const bool hand_on = answer.status == 200 && watch.arrived;
  while (!parser.is_done()) {
    const auto [error, read] = co_await http::async_read_some(stream, buffer, parser, as_tuple);
    if (error) co_return std::unexpected(failed("reading from", error, url, timeout));
    std::string& body = parser.get().body();
    if (hand_on && !body.empty()) watch.arrived(body);
    if (!hand_on) answer.body += body;
    body.clear();
    if (answer.body.size() > body_bytes_max) {
      co_return fail(ErrorCode::io, "{}:{} answered with more than {} bytes", url.host, url.port, body_bytes_max);
    }
  }
  co_return answer;
}

asio::awaitable<Result<HttpAnswer>> HttpClient::Connections::send_plain(Request& request, Watch& watch) {
  beast::tcp_stream stream(context);
  const auto connected = co_await connect(stream);
  if (!connected) co_return std::unexpected(connected.error());
  const auto answer = co_await exchange(stream, request, watch);
  error_code ignored;
  stream.socket().shutdown(tcp::socket::shutdown_both, ignored);
  co_return answer;
}

asio::awaitable<Result<HttpAnswer>> HttpClient::Connections::send_tls(Request& request, Watch& watch) {
  beast::ssl_stream<beast::tcp_stream> stream(context, *tls);
  error_code ignored;
  stream.set_verify_callback(asio::ssl::host_name_verification(url.host), ignored);
  SSL_set_tlsext_host_name(stream.native_handle(), url.host.c_str());
  const auto connected = co_await connect(stream.next_layer());
  if (!connected) co_return std::unexpected(connected.error());
  const auto [error] = co_await stream.async_handshake(asio::ssl::stream_base::client, as_tuple);
  if (error) co_return std::unexpected(failed("no TLS with", error, url, timeout));
  const auto answer = co_await exchange(stream, request, watch);
  beast::get_lowest_layer(stream).socket().shutdown(tcp::socket::shutdown_both, ignored);
  co_return answer;
}

asio::awaitable<Result<HttpAnswer>> HttpClient::Connections::send(Request request, Watch watch) {
  if (tls) {
    auto answer = co_await send_tls(request, watch);
    co_return answer;
  }
  auto answer = co_await send_plain(request, watch);
  co_return answer;
}

HttpClient::HttpClient(asio::io_context& context, Url url, std::string api_key, Duration timeout)
    : connections_(std::make_unique<Connections>(context, std::move(url), std::move(api_key), timeout)) {}
HttpClient::~HttpClient() = default;

asio::awaitable<Result<HttpAnswer>> HttpClient::send(const std::string& path, std::string body, Watch watch) {
  const Url& url = connections_->url;
  Request request(body.empty() ? http::verb::get : http::verb::post, url.path + path, 11);
  const bool is_v6 = url.host.find(':') != std::string::npos;
  const std::string host = is_v6 ? "[" + url.host + "]" : url.host;
  request.set(http::field::host, host + ":" + url.port);
  request.set(http::field::user_agent, "caravan-bench");
  request.set(http::field::connection, "close");
  if (!connections_->api_key.empty()) request.set(http::field::authorization, "Bearer " + connections_->api_key);
  if (!body.empty()) request.set(http::field::content_type, "application/json");
  request.body() = std::move(body);
  request.prepare_payload();
  return connections_->send(std::move(request), std::move(watch));
}

}  // namespace caravan::cli::bench
