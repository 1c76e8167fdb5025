// Renders chat templates with Jinja2 in a child process, as transformers does.
//
// The template comes out of a model file, so it is not trusted: Jinja2's sandbox, no file or network access by its
// filters, limits on memory and output, and a deadline for each rendering after which the child is killed and begun
// anew. Thread-safe; renderings take turns.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "base/mutex.h"
#include "base/result.h"
#include "engine/chat_template.h"

namespace caravan::engine {

class JinjaRenderer {
 public:
  struct Settings {
    std::string source;
    std::string bos;
    std::string eos;
    Duration deadline = std::chrono::seconds(5);
  };

  explicit JinjaRenderer(Settings settings) : settings_(std::move(settings)) {}
  ~JinjaRenderer();
  JinjaRenderer(const JinjaRenderer&) = delete;
  JinjaRenderer& operator=(const JinjaRenderer&) = delete;

  // Errors: invalid_argument with what the template raised; unsupported when python3 or Jinja2 are not there; io when
  // the child died or took too long.
  Result<std::string> render(std::span<const ChatMessage> messages, GenerationPrompt generation);

 private:
  Status begin() REQUIRES(mutex_);
  void finish() REQUIRES(mutex_);
  Result<std::string> exchange(const std::string& line, TimePoint deadline) REQUIRES(mutex_);

  const Settings settings_;
  Mutex mutex_;
  int child_ GUARDED_BY(mutex_) = -1;
  int socket_ GUARDED_BY(mutex_) = -1;
};

}  // namespace caravan::engine
