// /v1/chat/completions and /v1/completions: the way of one request, from bytes to its last event.
#pragma once

#include <boost/asio/awaitable.hpp>

namespace caravan::http {

class Connection;

boost::asio::awaitable<void> answer_chat(Connection& connection);
boost::asio::awaitable<void> answer_completion(Connection& connection);

}  // namespace caravan::http
