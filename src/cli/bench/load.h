// The users of a scenario at one server: conversations that go on from wave to wave.
// For the thread that runs the io_context.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <boost/asio/awaitable.hpp>

#include "cli/bench/answer.h"
#include "cli/bench/scenario.h"
#include "cli/bench/target.h"

namespace caravan::cli::bench {

struct WaveResult {
  std::uint32_t round = 0;
  std::uint32_t wave = 0;
  double seconds = 0;  // first arrival -> last answer
  std::vector<Record> records;
};

class Load {
 public:
  // All must outlive the load.
  Load(boost::asio::io_context& context, Target& target, const Scenario& scenario, const Texts& texts,
       std::uint32_t round);

  boost::asio::awaitable<WaveResult> run_wave(std::uint32_t wave, std::function<void(const WaveResult&)> progress);
  [[nodiscard]] Target& target() const { return target_; }

 private:
  struct Conversation {
    std::vector<Message> messages;
    std::uint32_t tokens = 0;  // of the last prompt and its answer
  };
  boost::asio::awaitable<void> be_user(std::uint32_t user, std::uint32_t wave, WaveResult& result);
  boost::asio::awaitable<void> report(const WaveResult& result, const std::uint32_t& busy,
                                      std::function<void(const WaveResult&)> progress);
  std::vector<Message> messages_for(Conversation& conversation, const Turn& turn) const;

  boost::asio::io_context& context_;
  Target& target_;
  const Scenario& scenario_;
  const Texts& texts_;
  std::uint32_t round_;
  std::vector<Conversation> conversations_;
};

}  // namespace caravan::cli::bench
