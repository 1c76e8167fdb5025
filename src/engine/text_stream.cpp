#include "engine/text_stream.h"

#include <algorithm>
#include <cstdint>

namespace caravan::engine {
namespace {

constexpr std::string_view replacement = "\xEF\xBF\xBD";  // U+FFFD

// The first position at which a stop string stands, or could come to stand once more bytes arrive.
struct StopSearch {
  std::size_t match = std::string::npos;  // complete
  std::size_t which = 0;
  std::size_t partial = std::string::npos;  // the text ends in a beginning of one
};

StopSearch find_stop(std::string_view text, const std::vector<std::string>& stops) {
  StopSearch found;
  for (std::size_t i = 0; i < stops.size(); ++i) {
    const std::size_t at = text.find(stops[i]);
    if (at < found.match) {
      found.match = at;
      found.which = i;
    }
    const std::size_t longest = std::min(text.size(), stops[i].size() - 1);
    for (std::size_t length = longest; length > 0; --length) {
      if (!text.ends_with(std::string_view(stops[i]).substr(0, length))) continue;
      found.partial = std::min(found.partial, text.size() - length);
      break;
    }
  }
  return found;
}

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

TextStream::TextStream(std::vector<std::string> stops) : stops_(std::move(stops)) {
  std::erase_if(stops_, [](const std::string& stop) { return stop.empty(); });
}

TextStream::Output TextStream::push(std::string_view bytes) {
  held_ += bytes;
  return release(false);
}

TextStream::Output TextStream::finish() { return release(true); }

TextStream::Output TextStream::release(bool all) {
  const StopSearch search = find_stop(held_, stops_);
  Output output;
  std::size_t end = held_.size();
  if (search.match != std::string::npos &&
      (all || search.partial == std::string::npos || search.match < search.partial)) {
    end = search.match;
    output.stop = stops_[search.which];
  } else if (!all && search.partial != std::string::npos) {
    end = search.partial;
  }
  const bool final = all || output.stop.has_value();
  std::string_view bytes = std::string_view(held_).substr(0, end);
  while (!bytes.empty()) {
    const Utf8Step step = utf8_step(bytes);
    if (step.length > 0) {
      output.text += bytes.substr(0, step.length);
      bytes.remove_prefix(step.length);
    } else if (step.incomplete && !final && bytes.size() < 4) {
      break;
    } else {
      output.text += replacement;
      bytes.remove_prefix(step.bad);
    }
  }
  if (output.stop) {
    held_.clear();
  } else {
    held_.erase(0, end - bytes.size());
  }
  return output;
}

}  // namespace caravan::engine
