// /v1/embeddings: each input is one engine request; a few of them are under way at a time.
#pragma once

#include <boost/asio/awaitable.hpp>

namespace caravan::http {

class Connection;

boost::asio::awaitable<void> answer_embeddings(Connection& connection);

}  // namespace caravan::http
