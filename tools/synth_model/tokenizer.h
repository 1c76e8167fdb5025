// The demo model's tokenizer (byte-level BPE, 2048 tokens, ChatML), built into the program.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

struct gguf_context;

namespace caravan::synth {

struct Tokenizer {
  std::vector<std::string> tokens;
  std::vector<std::string> merges;  // "left right"
  std::vector<std::int32_t> types;  // libllama's token types
  std::uint32_t end_of_text = 0;
  std::uint32_t end_of_turn = 0;
  std::vector<std::int64_t> control;  // tokens that are no text
};

Tokenizer demo_tokenizer();
void write_tokenizer(gguf_context* file, const Tokenizer& tokenizer);

}  // namespace caravan::synth
