// A few threads for what may take time (JSON, templates, tokenizing), so that the network thread never does.
// At most one task a connection is under way, so the queue is bounded by the connection limit.
#pragma once

#include <concepts>
#include <type_traits>
#include <utility>

#include <boost/asio/associated_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace caravan::http {

class Workers {
 public:
  explicit Workers(std::size_t threads) : pool_(threads) {}
  ~Workers() { pool_.join(); }
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  // Runs `function` on a worker and resumes the caller on its own executor. `function` must not throw; what it refers
  // to must live until it returns, also when the caller is cancelled meanwhile (the wait itself cannot be cancelled).
  template <class Function, class Value = std::invoke_result_t<Function>>
  boost::asio::awaitable<Value> run(Function function) {
    namespace asio = boost::asio;
    auto start = [this](auto handler, Function task) {
      auto work = [handler = std::move(handler), task = std::move(task)]() mutable {
        auto executor = asio::get_associated_executor(handler);
        auto resume = [handler = std::move(handler), value = task()]() mutable {
          std::move(handler)(std::move(value));
        };
        asio::post(executor, std::move(resume));
      };
      asio::post(pool_, std::move(work));
    };
    Value value = co_await asio::async_initiate<const asio::use_awaitable_t<>, void(Value)>(
        std::move(start), asio::use_awaitable, std::move(function));
    co_return value;
  }

 private:
  boost::asio::thread_pool pool_;
};

}  // namespace caravan::http
