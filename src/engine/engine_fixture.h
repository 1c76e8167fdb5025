// For tests and benchmarks: an engine that is stepped by hand, and requests whose answers are collected.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <prometheus/registry.h>

#include "base/check.h"
#include "engine/engine.h"
#include "engine/model.h"

namespace caravan::engine {

// What a request's listener was told.
struct Answer {
  std::map<std::uint32_t, std::string> text;  // by choice
  std::map<std::uint32_t, ChoiceEnd> ends;
  std::vector<TokenLogprob> logprobs;  // of choice 0
  std::vector<float> embedding;
  std::optional<Account> account;
  std::optional<Error> error;
  bool done = false;
  std::size_t after_end = 0;  // events that came after the last one: must stay 0
};

class HandDrivenEngine {
 public:
  HandDrivenEngine(const Model& model, EngineOptions options, EngineTiers tiers = {}) : model_(model) {
    auto made = Engine::create(model, std::move(options), registry_, std::move(tiers));
    if (!made) {
      error_ = made.error();
      return;
    }
    engine_ = std::move(*made);
  }

  [[nodiscard]] const std::optional<Error>& error() const { return error_; }
  Engine& operator*() { return *engine_; }
  Engine* operator->() { return engine_.get(); }

  static Request greedy(std::vector<Token> prompt, std::uint32_t max_tokens) {
    Request request;
    request.prompt = std::move(prompt);
    request.sampling.temperature = 0;
    request.max_tokens = max_tokens;
    return request;
  }
  [[nodiscard]] std::vector<Token> tokens(std::string_view text) const {
    auto made = model_.tokenize(text, AddSpecial::yes, ParseSpecial::yes);
    CHECK(made.has_value());
    return std::move(*made);
  }

  // The answer fills up as the engine is stepped.
  std::shared_ptr<Answer> submit(Request request) {
    auto answer = std::make_shared<Answer>();
    if (request.id.empty()) request.id = "r" + std::to_string(++submitted_);
    const Status status =
        engine_->submit(std::move(request), [answer](Event event) { note(*answer, std::move(event)); });
    if (!status) {
      answer->error = status.error();
      answer->done = true;
    }
    return answer;
  }
  void run() {
    while (engine_->step()) continue;
  }
  // Where something comes up from a worker: until the answer is there.
  void run_until_done(const Answer& answer) {
    const TimePoint deadline = Clock::now() + std::chrono::seconds(60);
    while (!answer.done && Clock::now() < deadline) {
      if (!engine_->step()) std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    run();
  }
  std::shared_ptr<Answer> ask(Request request) {
    auto answer = submit(std::move(request));
    run_until_done(*answer);
    return answer;
  }
  [[nodiscard]] EngineStatus status() const { return *engine_->status(); }

 private:
  static void note(Answer& answer, Event event) {
    if (answer.done) ++answer.after_end;
    if (auto* delta = std::get_if<Delta>(&event)) {
      answer.text[delta->choice] += delta->text;
      if (delta->choice == 0) {
        answer.logprobs.insert(answer.logprobs.end(), delta->logprobs.begin(), delta->logprobs.end());
      }
    } else if (auto* end = std::get_if<ChoiceEnd>(&event)) {
      answer.ends[end->choice] = *end;
    } else if (auto* embedding = std::get_if<Embedding>(&event)) {
      answer.embedding = std::move(embedding->values);
    } else if (auto* finished = std::get_if<RequestEnd>(&event)) {
      answer.account = finished->account;
      answer.done = true;
    } else if (auto* failed = std::get_if<RequestFailed>(&event)) {
      answer.error = failed->error;
      answer.done = true;
    }
  }

  const Model& model_;
  prometheus::Registry registry_;
  std::unique_ptr<Engine> engine_;
  std::optional<Error> error_;
  std::uint64_t submitted_ = 0;
};

}  // namespace caravan::engine
