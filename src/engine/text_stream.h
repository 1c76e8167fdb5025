// From token bytes to text that may be sent: whole UTF-8 characters, and nothing that could still become a stop string.
//
// Pure; one for each choice. Bytes that are no UTF-8 become U+FFFD, one for each maximal subpart (as browsers decode).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace caravan::engine {

class TextStream {
 public:
  struct Output {
    std::string text;                 // valid UTF-8; final
    std::optional<std::string> stop;  // set: this stop string matched right behind `text`; push nothing more
  };

  // Empty stop strings are ignored.
  explicit TextStream(std::vector<std::string> stops);

  Output push(std::string_view bytes);
  // What was held back in case it became a character or a stop string.
  Output finish();

 private:
  // A stop string and how much of it the text ends in (Knuth, Morris and Pratt): the work for a byte does not grow with
  // what is held.
  struct Stop {
    std::string text;
    std::vector<std::size_t> fallback;  // [i]: the longest beginning that text[0..i] ends in, but for itself
    std::size_t matched = 0;
  };
  struct Match {
    std::size_t at = 0;  // in held_
    std::size_t stop = 0;
  };

  bool advance(char byte, std::size_t end);
  [[nodiscard]] std::size_t earliest_beginning(std::size_t end) const;
  Output release(std::size_t end, bool final);

  std::vector<Stop> stops_;
  std::string held_;            // bytes not yet sent
  std::optional<Match> match_;  // complete, while one that begins earlier may still become so
};

// The length of a well-formed UTF-8 character at the front of `bytes`; 0 if there is none. `incomplete` tells whether
// more bytes could make it one; `bad` how many bytes the maximal ill-formed subpart has otherwise.
struct Utf8Step {
  std::size_t length = 0;
  bool incomplete = false;
  std::size_t bad = 0;
};
Utf8Step utf8_step(std::string_view bytes);
[[nodiscard]] bool utf8_valid(std::string_view bytes);

}  // namespace caravan::engine
