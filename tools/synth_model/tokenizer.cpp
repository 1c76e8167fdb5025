#include "tokenizer.h"

#include <string_view>

#include <boost/json.hpp>
#include <fmt/format.h>
#include <gguf.h>

#include "base/check.h"

namespace caravan::synth {

extern const std::string_view demo_merges;  // models/demo/merges.json, put here by CMake

namespace {

constexpr std::string_view chat_template =
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

constexpr std::int32_t normal_type = 1;
constexpr std::int32_t control_type = 3;

std::string utf8(std::uint32_t character) {  // below U+0800
  if (character < 0x80) return {static_cast<char>(character)};
  return {static_cast<char>(0xC0 | (character >> 6)), static_cast<char>(0x80 | (character & 0x3F))};
}

// Byte-level BPE writes each byte as a printable character: itself where it is one, else the next from U+0100 on.
std::vector<std::string> byte_characters() {
  std::vector<std::string> characters;
  std::uint32_t next = 256;
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 33 && byte < 127) || (byte >= 161 && byte < 173) || byte >= 174;
    characters.push_back(utf8(printable ? byte : next++));
  }
  return characters;
}

std::vector<const char*> pointers(const std::vector<std::string>& texts) {
  std::vector<const char*> out;
  out.reserve(texts.size());
  for (const std::string& text : texts) out.push_back(text.c_str());
  return out;
}

void set_texts(gguf_context* file, const char* key, const std::vector<std::string>& texts) {
  gguf_set_arr_str(file, key, pointers(texts).data(), texts.size());
}

}  // namespace

Tokenizer demo_tokenizer() {
  Tokenizer made;
  made.tokens = byte_characters();
  const boost::json::value parsed = boost::json::parse(demo_merges);
  for (const auto& pair : parsed.as_array()) {
    const std::string left(pair.at(0).as_string());
    const std::string right(pair.at(1).as_string());
    made.tokens.push_back(left + right);
    made.merges.push_back(fmt::format("{} {}", left, right));
  }
  made.types.assign(made.tokens.size(), normal_type);
  const auto add_control = [&](const char* text) {
    made.control.push_back(static_cast<std::int64_t>(made.tokens.size()));
    made.tokens.emplace_back(text);
    made.types.push_back(control_type);
    return static_cast<std::uint32_t>(made.tokens.size() - 1);
  };
  made.end_of_text = add_control("<|endoftext|>");
  add_control("<|im_start|>");
  made.end_of_turn = add_control("<|im_end|>");
  return made;
}

void write_tokenizer(gguf_context* file, const Tokenizer& tokenizer) {
  CHECK(tokenizer.types.size() == tokenizer.tokens.size());
  gguf_set_val_str(file, "tokenizer.ggml.model", "gpt2");
  gguf_set_val_str(file, "tokenizer.ggml.pre", "gpt-2");
  set_texts(file, "tokenizer.ggml.tokens", tokenizer.tokens);
  gguf_set_arr_data(file, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, tokenizer.types.data(), tokenizer.types.size());
  set_texts(file, "tokenizer.ggml.merges", tokenizer.merges);
  gguf_set_val_u32(file, "tokenizer.ggml.token_type_count", 2);
  gguf_set_val_u32(file, "tokenizer.ggml.bos_token_id", tokenizer.end_of_text);
  gguf_set_val_u32(file, "tokenizer.ggml.eos_token_id", tokenizer.end_of_turn);
  gguf_set_val_u32(file, "tokenizer.ggml.eot_token_id", tokenizer.end_of_turn);
  gguf_set_val_u32(file, "tokenizer.ggml.padding_token_id", tokenizer.end_of_text);
  gguf_set_val_bool(file, "tokenizer.ggml.add_bos_token", false);
  gguf_set_val_bool(file, "tokenizer.ggml.add_eos_token", false);
  gguf_set_val_str(file, "tokenizer.chat_template", std::string(chat_template).c_str());
}

}  // namespace caravan::synth
