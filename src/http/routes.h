// The table of everything this server answers.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <variant>

#include <boost/asio/awaitable.hpp>

#include "http/access.h"
#include "http/message.h"
#include "http/state.h"

namespace caravan::http {

class Connection;

// Answers at once, on the network thread: takes microseconds.
struct Quick {
  HttpResponse (*answer)(const HttpRequest&, ServerState&);
};
// Answers on a worker; called only once a model serves.
struct Work {
  HttpResponse (*answer)(const HttpRequest&, const Serving&, ServerState&);
};
// Takes its time on the network thread, and is cancelled when the client goes; called only once a model serves.
struct Conversation {
  boost::asio::awaitable<void> (*answer)(Connection&);
};

struct Route {
  Method method = Method::get;
  std::string_view path;  // ends with '/': whatever follows belongs to it, and something must
  Access access = Access::key;
  std::variant<Quick, Work, Conversation> handler;
};

std::span<const Route> routes();

// `route` is null when there is none; `allow` then lists the methods that the path has, empty: no such path.
struct Found {
  const Route* route = nullptr;
  std::string allow;
};
Found find_route(Method method, std::string_view path);

}  // namespace caravan::http
