#include "engine/text_stream.h"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace caravan::engine {
namespace {

constexpr std::string_view replacement = "\xEF\xBF\xBD";  // U+FFFD

}  // namespace

Utf8Step utf8_step(std::string_view bytes) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(bytes[i]); };
  if (bytes.empty()) return {.incomplete = true};
  const std::uint8_t lead = byte(0);
  if (lead < 0x80) return {.length = 1};
  std::size_t length = 0;
  std::uint8_t low = 0x80;  // bounds of the second byte exclude overlong forms, surrogates and what is beyond U+10FFFF
  std::uint8_t high = 0xBF;
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return {.bad = 1};
  }
  for (std::size_t i = 1; i < length; ++i) {
    if (i == bytes.size()) return {.incomplete = true, .bad = i};
    if (byte(i) < low || byte(i) > high) return {.bad = i};
    low = 0x80;
    high = 0xBF;
  }
  return {.length = length};
}

bool utf8_valid(std::string_view bytes) {
  while (!bytes.empty()) {
    const Utf8Step step = utf8_step(bytes);
    if (step.length == 0) return false;
    bytes.remove_prefix(step.length);
  }
  return true;
}

TextStream::TextStream(std::vector<std::string> stops) {
  for (std::string& text : stops) {
    if (text.empty()) continue;
    std::vector<std::size_t> fallback(text.size());
    for (std::size_t i = 1, length = 0; i < text.size(); ++i) {
      while (length > 0 && text[i] != text[length]) length = fallback[length - 1];
      if (text[i] == text[length]) ++length;
      fallback[i] = length;
    }
    stops_.push_back({.text = std::move(text), .fallback = std::move(fallback)});
  }
}

// Takes in held_[end - 1]. Whether a match is final: no stop string that begins before it can still be completed.
bool TextStream::advance(char byte, std::size_t end) {
  for (std::size_t i = 0; i < stops_.size(); ++i) {
    Stop& stop = stops_[i];
    while (stop.matched > 0 && stop.text[stop.matched] != byte) stop.matched = stop.fallback[stop.matched - 1];
    if (stop.text[stop.matched] == byte) ++stop.matched;
    if (stop.matched < stop.text.size()) continue;
    const std::size_t at = end - stop.text.size();
    if (!match_ || at < match_->at) match_ = Match{.at = at, .stop = i};
    stop.matched = stop.fallback.back();
  }
  return match_ && match_->at <= earliest_beginning(end);
}

// Where in held_ the first stop string begins that more bytes could complete; `end` if there is none.
std::size_t TextStream::earliest_beginning(std::size_t end) const {
  std::size_t earliest = end;
  for (const Stop& stop : stops_) earliest = std::min(earliest, end - stop.matched);
  return earliest;
}

TextStream::Output TextStream::push(std::string_view bytes) {
  std::size_t end = held_.size();
  held_ += bytes;
  if (stops_.empty()) return release(held_.size(), false);
  while (end < held_.size()) {
    const char byte = held_[end++];
    if (advance(byte, end)) return finish();
  }
  return release(earliest_beginning(end), false);
}

TextStream::Output TextStream::finish() {
  Output output = release(match_ ? match_->at : held_.size(), true);
  if (match_) output.stop = stops_[match_->stop].text;
  held_.clear();
  match_.reset();
  return output;
}

// Sends what stands before `end`, but for a character at the end that is not whole, unless nothing more will come.
TextStream::Output TextStream::release(std::size_t end, bool final) {
  Output output;
  std::string_view bytes = std::string_view(held_).substr(0, end);
  while (!bytes.empty()) {
    const Utf8Step step = utf8_step(bytes);
    if (step.length > 0) {
      output.text += bytes.substr(0, step.length);
      bytes.remove_prefix(step.length);
    } else if (step.incomplete && !final) {
      break;
    } else {
      output.text += replacement;
      bytes.remove_prefix(step.bad);
    }
  }
  const std::size_t sent = end - bytes.size();
  held_.erase(0, sent);
  if (match_) match_->at -= sent;
  return output;
}

}  // namespace caravan::engine
