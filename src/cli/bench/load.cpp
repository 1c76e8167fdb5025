#include "cli/bench/load.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace caravan::cli::bench {

namespace asio = boost::asio;

namespace {

constexpr auto as_tuple = asio::as_tuple(asio::use_awaitable);
constexpr auto progress_interval = std::chrono::milliseconds(250);

}  // namespace

Load::Load(asio::io_context& context, Target& target, const Scenario& scenario, const Texts& texts, std::uint32_t round)
    : context_(context),
      target_(target),
      scenario_(scenario),
      texts_(texts),
      round_(round),
      conversations_(scenario.users.size()) {}

std::vector<Message> Load::messages_for(Conversation& conversation, const Turn& turn) const {
  if (!scenario_.history || conversation.messages.empty()) {
    conversation = {.messages = {{"system", texts_.texts.at(turn.system)}}, .tokens = 0};
  }
  conversation.messages.push_back({"user", texts_.texts.at(turn.question)});
  return conversation.messages;
}

asio::awaitable<void> Load::be_user(std::uint32_t user, std::uint32_t wave, WaveResult& result) {
  const auto& options = scenario_.options;
  Conversation& conversation = conversations_[user];
  if (options.wave_kind == WaveKind::repeat) conversation = Conversation();
  asio::steady_timer timer(context_);
  timer.expires_after(scenario_.users[user].arrivals[wave]);
  co_await timer.async_wait(as_tuple);
  const auto& turns = scenario_.users[user].waves[wave];
  for (std::uint32_t t = 0; t < turns.size(); ++t) {
    if (t > 0 && options.think > Duration::zero()) {
      timer.expires_after(options.think);
      co_await timer.async_wait(as_tuple);
    }
    auto messages = messages_for(conversation, turns[t]);
    const std::uint32_t history = conversation.tokens;
    Record record = co_await target_.ask(std::move(messages), options.answer_tokens);
    record.round = round_;
    record.wave = wave;
    record.user = user;
    record.turn = t;
    record.history_tokens = history;
    if (record.error.empty()) {
      conversation.messages.push_back({"assistant", std::move(record.text)});
      conversation.tokens = record.prompt_tokens + record.completion_tokens;
    } else {
      conversation.messages.pop_back();  // asked in vain: the history stays as it was
    }
    record.text.clear();
    result.records.push_back(std::move(record));
  }
}

asio::awaitable<void> Load::report(const WaveResult& result, const std::uint32_t& busy,
                                   std::function<void(const WaveResult&)> progress) {
  asio::steady_timer timer(context_);
  while (busy > 0) {
    progress(result);
    timer.expires_after(progress_interval);
    co_await timer.async_wait(as_tuple);
  }
}

asio::awaitable<WaveResult> Load::run_wave(std::uint32_t wave, std::function<void(const WaveResult&)> progress) {
  WaveResult result{.round = round_, .wave = wave, .seconds = 0, .records = {}};
  auto busy = static_cast<std::uint32_t>(scenario_.users.size());
  asio::steady_timer over(context_, asio::steady_timer::time_point::max());
  const TimePoint start = Clock::now();
  for (std::uint32_t user = 0; user < scenario_.users.size(); ++user) {
    asio::co_spawn(context_, be_user(user, wave, result), [&](const std::exception_ptr& problem) {
      if (problem) std::rethrow_exception(problem);
      if (--busy == 0) {
        result.seconds = seconds(Clock::now() - start);
        over.cancel();
      }
    });
  }
  if (progress) {
    co_await report(result, busy, std::move(progress));
  } else {
    co_await over.async_wait(as_tuple);
  }
  co_return result;
}

}  // namespace caravan::cli::bench
