// From messages to the prompt a chat model was trained on.
//
// libllama renders the templates that it recognises. Any other Jinja template is rendered by Jinja2 itself, the engine
// that model authors write for, in a sandboxed child process (jinja_renderer.h). Thread-safe; rendering may block for a
// bounded time, so it belongs on a worker thread.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/request.h"

namespace caravan::engine {

class JinjaRenderer;
class Model;

struct ChatMessage {
  std::string role;
  std::string content;
};

enum class GenerationPrompt : bool { no, yes };  // end with the opening of an assistant turn

class ChatTemplate {
 public:
  // `chosen` is empty for the model's own template, one of libllama's built-in names, or the text of a template. A
  // template that cannot be rendered is refused here, not at the first request.
  static Result<std::unique_ptr<ChatTemplate>> create(const Model& model, std::string_view chosen);
  ~ChatTemplate();
  ChatTemplate(const ChatTemplate&) = delete;
  ChatTemplate& operator=(const ChatTemplate&) = delete;

  // Errors: invalid_argument for messages that the template refuses, io when the renderer fails.
  [[nodiscard]] Result<std::string> render(std::span<const ChatMessage> messages, GenerationPrompt generation) const;
  // Rendered and tokenized. Text in a message that looks like a control token is text.
  [[nodiscard]] Result<std::vector<Token>> tokens(std::span<const ChatMessage> messages,
                                                  GenerationPrompt generation) const;

  [[nodiscard]] const std::string& source() const { return source_; }
  [[nodiscard]] std::string_view renderer() const { return jinja_ ? "jinja2" : "libllama"; }

 private:
  ChatTemplate(const Model& model, std::string source);
  [[nodiscard]] Status try_out();

  const Model& model_;
  std::string source_;
  std::unique_ptr<JinjaRenderer> jinja_;  // none: libllama renders
  bool system_in_user_ = false;           // the template knows no system role: its text goes before the first user's
};

}  // namespace caravan::engine
