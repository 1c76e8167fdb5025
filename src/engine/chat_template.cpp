#include "engine/chat_template.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <utility>

#include <llama.h>

#include "base/log.h"
#include "engine/jinja_renderer.h"
#include "engine/model.h"

namespace caravan::engine {
namespace {

constexpr std::string_view fallback = "chatml";

// libllama's rendering; none if it does not know the template.
std::optional<std::string> render_builtin(const std::string& source, std::span<const ChatMessage> messages,
                                          GenerationPrompt generation) {
  std::vector<llama_chat_message> list;
  std::size_t size = 1024;
  for (const ChatMessage& message : messages) {
    list.push_back({message.role.c_str(), message.content.c_str()});
    size += message.role.size() + 2 * message.content.size() + 64;
  }
  std::string text(size, '\0');
  const auto run = [&] {
    return llama_chat_apply_template(source.c_str(), list.data(), list.size(), generation == GenerationPrompt::yes,
                                     text.data(), static_cast<std::int32_t>(text.size()));
  };
  std::int32_t length = run();
  if (length < 0) return std::nullopt;
  if (static_cast<std::size_t>(length) > text.size()) {
    text.resize(static_cast<std::size_t>(length));
    length = run();
  }
  text.resize(static_cast<std::size_t>(length));
  return text;
}

bool builtin_name(std::string_view name) {
  std::array<const char*, 256> names{};
  const int count = llama_chat_builtin_templates(names.data(), names.size());
  return std::ranges::find(names.begin(), names.begin() + std::min<int>(count, names.size()), name) !=
         names.begin() + std::min<int>(count, names.size());
}

// Texts that stand in messages for control texts while they are rendered: private-use characters around a number, in a
// form that no message holds, so that nobody can write one.
class Sentinels {
 public:
  explicit Sentinels(std::span<const ChatMessage> messages) {
    for (std::size_t tag = 0;; ++tag) {
      begin_ = "\uE000" + std::to_string(tag) + "\uF8FF";
      if (std::ranges::none_of(messages, [&](const ChatMessage& message) {
            return message.role.find(begin_) != std::string::npos || message.content.find(begin_) != std::string::npos;
          })) {
        return;
      }
    }
  }

  // `text` with a sentinel for each control text.
  std::string hide(const std::string& text, const std::vector<std::string>& control_texts) {
    std::string hidden;
    for (std::size_t i = 0; i < text.size();) {
      const std::string* longest = nullptr;
      for (const std::string& each : control_texts) {
        if (text.compare(i, each.size(), each) == 0 && (longest == nullptr || each.size() > longest->size())) {
          longest = &each;
        }
      }
      if (longest == nullptr) {
        hidden += text[i++];
        continue;
      }
      hidden.append(begin_).append(std::to_string(literals_.size())).append(end);
      literals_.push_back(*longest);
      i += longest->size();
    }
    return hidden;
  }

  // Takes the text up to the next sentinel off the front of `rest`, and the sentinel; gives that text and the hidden
  // one. A template may have moved, repeated or dropped any of them.
  std::pair<std::string_view, std::string_view> split(std::string_view& rest) const {
    for (std::size_t at = rest.find(begin_); at != std::string_view::npos; at = rest.find(begin_, at + 1)) {
      const std::string_view number =
          rest.substr(at + begin_.size(), rest.find(end, at + begin_.size()) - at - begin_.size());
      std::size_t index = literals_.size();
      if (std::from_chars(number.begin(), number.end(), index).ptr != number.end() || index >= literals_.size())
        continue;
      const std::string_view before = rest.substr(0, at);
      rest.remove_prefix(at + begin_.size() + number.size() + end.size());
      return {before, literals_[index]};
    }
    return {std::exchange(rest, {}), {}};
  }

 private:
  static constexpr std::string_view end = "\uE001";
  std::string begin_;
  std::vector<std::string> literals_;
};

std::vector<ChatMessage> system_into_user(std::span<const ChatMessage> messages) {
  std::vector<ChatMessage> merged;
  std::string before;
  for (const ChatMessage& message : messages) {
    if (message.role == "system") {
      before += message.content + "\n\n";
      continue;
    }
    merged.push_back(message);
    if (message.role == "user" && !before.empty()) merged.back().content = std::exchange(before, {}) + message.content;
  }
  if (!before.empty()) merged.push_back({"user", before});
  return merged;
}

}  // namespace

ChatTemplate::ChatTemplate(const Model& model, std::string source) : model_(model), source_(std::move(source)) {}
ChatTemplate::~ChatTemplate() = default;

Result<std::unique_ptr<ChatTemplate>> ChatTemplate::create(const Model& model, std::string_view chosen) {
  std::string source(chosen);
  if (source.empty()) source = model.info().chat_template;
  if (source.empty()) {
    log::warn("{} has no chat template; using {} (--chat-template NAME chooses another)", model.info().name, fallback);
    source = fallback;
  }
  const bool looks_like_a_name = source.find_first_of("{\n ") == std::string::npos;
  if (looks_like_a_name && !builtin_name(source)) {
    return fail(ErrorCode::invalid_argument,
                "--chat-template {}: no built-in template has this name and it is no Jinja", source);
  }
  std::unique_ptr<ChatTemplate> made(new ChatTemplate(model, std::move(source)));
  const ChatMessage probe[] = {{"user", "a"}};
  if (!render_builtin(made->source_, probe, GenerationPrompt::yes)) {
    made->jinja_ = std::make_unique<JinjaRenderer>(
        JinjaRenderer::Settings{.source = made->source_, .bos = model.bos_text(), .eos = model.eos_text()});
    if (const Status tried = made->try_out(); !tried) return std::unexpected(tried.error());
  }
  return made;
}

Status ChatTemplate::try_out() {
  const std::string question = "Which way to the sea?";
  const ChatMessage chat[] = {
      {"system", "Be brief."}, {"user", "Good day."}, {"assistant", "Hello."}, {"user", question}};
  auto rendered = render(chat, GenerationPrompt::yes);
  if (!rendered && rendered.error().code == ErrorCode::invalid_argument) {
    system_in_user_ = true;
    const auto again = render(chat, GenerationPrompt::yes);
    if (again) {
      log::info("the chat template knows no system role; its text goes before the first user's");
      rendered = again;
    }
  }
  if (rendered && rendered->find(question) != std::string::npos) return {};
  return fail(ErrorCode::unsupported, "the model's chat template cannot be used ({}); choose one with --chat-template",
              rendered ? "it drops the user's text" : rendered.error().message);
}

Result<std::string> ChatTemplate::render(std::span<const ChatMessage> messages, GenerationPrompt generation) const {
  for (const ChatMessage& message : messages) {
    if (message.role.find('\0') == std::string::npos && message.content.find('\0') == std::string::npos) continue;
    return fail(ErrorCode::invalid_argument, "a message holds a NUL character");
  }
  if (!jinja_) {
    if (auto text = render_builtin(source_, messages, generation)) return std::move(*text);
    return fail(ErrorCode::invalid_argument, "the chat template refuses these messages");
  }
  if (system_in_user_) return jinja_->render(system_into_user(messages), generation);
  return jinja_->render(messages, generation);
}

Result<std::vector<Token>> ChatTemplate::tokens(std::span<const ChatMessage> messages,
                                                GenerationPrompt generation) const {
  Sentinels sentinels(messages);
  std::vector<ChatMessage> hidden(messages.begin(), messages.end());
  for (ChatMessage& message : hidden) {
    message.role = sentinels.hide(message.role, model_.control_texts());
    message.content = sentinels.hide(message.content, model_.control_texts());
  }
  const auto rendered = render(hidden, generation);
  if (!rendered) return std::unexpected(rendered.error());

  // A template that writes the BOS itself must not get a second one.
  const std::string bos = model_.bos_text();
  AddSpecial add = !bos.empty() && rendered->starts_with(bos) ? AddSpecial::no : AddSpecial::yes;
  std::vector<Token> all;
  const auto append = [&](std::string_view text, ParseSpecial parse) -> Status {
    const auto part = model_.tokenize(text, add, parse);
    if (!part) return std::unexpected(part.error());
    all.insert(all.end(), part->begin(), part->end());
    add = AddSpecial::no;
    return {};
  };
  std::string_view rest = *rendered;
  while (!rest.empty()) {
    const auto [before, literal] = sentinels.split(rest);
    if (const Status done = append(before, ParseSpecial::yes); !done) return std::unexpected(done.error());
    if (literal.empty()) break;
    if (const Status done = append(literal, ParseSpecial::no); !done) return std::unexpected(done.error());
  }
  return all;
}

}  // namespace caravan::engine
