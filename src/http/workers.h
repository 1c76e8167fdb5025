// A few threads for what may take time (JSON, templates, tokenizing), so that the network thread never does.
// At most one task a connection is under way, so the queue is bounded by the connection limit.
#pragma once

#include <cstddef>
#include <exception>
#include <expected>
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

  // Runs `function` on a worker and resumes the caller on its own executor; what `function` throws is thrown there.
  // The wait itself cannot be cancelled, so what `function` refers to lives until it has returned.
  template <class Function, class Value = std::invoke_result_t<Function>>
  boost::asio::awaitable<Value> run(Function function) {
    namespace asio = boost::asio;
    using Outcome = std::expected<Value, std::exception_ptr>;
    auto start = [this](auto handler, Function task) {
      auto work = [handler = std::move(handler), task = std::move(task)]() mutable {
        auto executor = asio::get_associated_executor(handler);
        auto resume = [handler = std::move(handler), outcome = outcome_of<Outcome>(task)]() mutable {
          std::move(handler)(std::move(outcome));
        };
        asio::post(executor, std::move(resume));
      };
      asio::post(pool_, std::move(work));
    };
    Outcome outcome = co_await asio::async_initiate<const asio::use_awaitable_t<>, void(Outcome)>(
        std::move(start), asio::use_awaitable, std::move(function));
    if (!outcome) std::rethrow_exception(outcome.error());
    co_return std::move(*outcome);
  }

 private:
  template <class Outcome, class Task>
  static Outcome outcome_of(Task& task) {
    try {
      return task();
    } catch (...) {
      return std::unexpected(std::current_exception());
    }
  }

  boost::asio::thread_pool pool_;
};

}  // namespace caravan::http
