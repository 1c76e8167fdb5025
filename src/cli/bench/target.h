// One server under load: what it is called, how its texts are counted, and the requests that go to it.
// For the thread that runs the io_context.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/awaitable.hpp>

#include "base/result.h"
#include "cli/bench/answer.h"
#include "cli/bench/bench_options.h"
#include "cli/bench/http_client.h"
#include "cli/bench/scenario.h"

namespace caravan::cli::bench {

// The texts of a scenario, made once and sent to every server.
struct Texts {
  std::map<TextPlan, std::string> texts;
  std::uint32_t inexact = 0;  // texts whose token count was missed, or only estimated
  bool estimated = false;     // the server does not count tokens
};

struct Message {
  std::string role;
  std::string content;
};

class Target {
 public:
  Target(boost::asio::io_context& context, std::string label, Url url, const BenchOptions& options);

  // Finds the model's name. Errors: the server does not answer, or refuses the key.
  boost::asio::awaitable<Status> meet();
  boost::asio::awaitable<Result<Texts>> make_texts(std::vector<TextPlan> plans, std::function<void(std::size_t)> made);
  boost::asio::awaitable<Record> ask(std::vector<Message> messages, std::uint32_t answer_tokens);
  // The most KV cells that were in use since the server started; none if it does not say.
  boost::asio::awaitable<std::optional<std::uint64_t>> peak_cells();

  [[nodiscard]] const std::string& label() const { return label_; }
  [[nodiscard]] const std::string& model() const { return model_; }

 private:
  boost::asio::awaitable<std::optional<std::size_t>> count_tokens(std::string text);
  [[nodiscard]] std::string request_body(const std::vector<Message>& messages, std::uint32_t answer_tokens) const;

  std::string label_;
  std::string model_;
  const BenchOptions& options_;
  HttpClient client_;
};

}  // namespace caravan::cli::bench
