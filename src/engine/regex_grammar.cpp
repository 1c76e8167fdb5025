#include "engine/regex_grammar.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "engine/text_stream.h"

namespace caravan::engine {
namespace {

constexpr int depth_max = 32;
constexpr std::size_t repeat_max = 1000;
constexpr char32_t last_character = 0x10FFFF;

// A set of characters, as ranges.
using Ranges = std::vector<std::pair<char32_t, char32_t>>;

const Ranges digits = {{U'0', U'9'}};
const Ranges word = {{U'0', U'9'}, {U'A', U'Z'}, {U'_', U'_'}, {U'a', U'z'}};
const Ranges space = {{U'\t', U'\t'}, {U'\n', U'\n'}, {U'\r', U'\r'}, {U' ', U' '}};
const Ranges line_ends = {{U'\n', U'\n'}, {U'\r', U'\r'}, {0x2028, 0x2029}};

Ranges joined(Ranges ranges) {
  std::ranges::sort(ranges);
  Ranges all;
  for (const auto& range : ranges) {
    if (!all.empty() && range.first <= all.back().second + 1) {
      all.back().second = std::max(all.back().second, range.second);
    } else {
      all.push_back(range);
    }
  }
  return all;
}

Ranges complement(const Ranges& ranges) {
  Ranges all;
  char32_t next = 0;
  for (const auto& [low, high] : joined(ranges)) {
    if (next < low) all.emplace_back(next, low - 1);
    next = high + 1;
  }
  if (next <= last_character) all.emplace_back(next, last_character);
  return all;
}

bool contains(const Ranges& ranges, char32_t character) {
  return std::ranges::any_of(ranges,
                             [&](const auto& range) { return range.first <= character && character <= range.second; });
}

// How a JSON string writes a character that it cannot hold as it is; empty for all others.
std::string json_escape(char32_t character) {
  switch (character) {
    case U'"':
      return R"("\\\"")";
    case U'\\':
      return R"("\\\\")";
    case U'\n':
      return R"("\\n")";
    case U'\r':
      return R"("\\r")";
    case U'\t':
      return R"("\\t")";
    case U'\b':
      return R"("\\b")";
    case U'\f':
      return R"("\\f")";
    default:
      return character < 0x20 ? fmt::format("\"\\\\u{:04x}\"", static_cast<std::uint32_t>(character)) : std::string();
  }
}

// One character of the set, as it is written inside a JSON string.
std::string one_of(const Ranges& set) {
  const Ranges ranges = joined(set);
  Ranges left_out = {{0x00, 0x1F}, {U'"', U'"'}, {U'\\', U'\\'}, {0x7F, 0x7F}, {0xD800, 0xDFFF}};
  const Ranges outside = complement(ranges);
  left_out.insert(left_out.end(), outside.begin(), outside.end());
  std::string members;
  for (const auto& [low, high] : complement(left_out)) {
    members += grammar_escape(low) + (high > low ? "-" + grammar_escape(high) : "");
  }
  std::string all = members.empty() ? "" : "[" + members + "]";
  for (const char32_t character : {U'"', U'\\', U'\n', U'\r', U'\t', U'\b', U'\f'}) {
    if (contains(ranges, character)) all += (all.empty() ? "" : " | ") + json_escape(character);
  }
  return all.find(" | ") == std::string::npos ? all : "(" + all + ")";
}

class Parser {
 public:
  Parser(std::string_view pattern, std::string_view any) : rest_(pattern), any_(any) {}

  Result<std::string> parse() {
    std::string body;
    do {
      const bool from_start = take('^');
      ended_by_dollar_ = false;
      const std::string middle = sequence(0);
      const std::string anything = std::string(any_) + "*";
      body += std::string(body.empty() ? "" : " | ") + (from_start ? "" : anything + " ") + middle +
              (ended_by_dollar_ ? "" : " " + anything);
    } while (error_.empty() && take('|'));
    if (error_.empty() && !rest_.empty()) wrong("a ) is not opened");
    if (!error_.empty()) return fail(ErrorCode::invalid_argument, "{}", error_);
    return "(" + body + ")";
  }

 private:
  bool take(char expected) {
    if (rest_.empty() || rest_.front() != expected) return false;
    rest_.remove_prefix(1);
    return true;
  }
  std::string wrong(std::string message) {
    if (error_.empty()) error_ = std::move(message);
    rest_ = {};
    return "\"\"";
  }
  char32_t next() {
    const Utf8Step step = utf8_step(rest_);
    if (step.length == 0) {
      wrong("it is no valid UTF-8");
      return U'?';
    }
    char32_t value = static_cast<unsigned char>(rest_[0]);
    if (step.length > 1) {
      value &= 0xFFU >> (step.length + 1);
      for (std::size_t i = 1; i < step.length; ++i) value = value << 6 | (static_cast<unsigned char>(rest_[i]) & 0x3F);
    }
    rest_.remove_prefix(step.length);
    return value;
  }

  std::string alternatives(int depth) {
    if (depth > depth_max) return wrong("it nests too deep");
    std::string body = sequence(depth);
    while (take('|')) body += " | " + sequence(depth);
    return body;
  }

  std::string sequence(int depth) {
    std::string body;
    while (error_.empty() && !rest_.empty() && rest_.front() != '|' && rest_.front() != ')') {
      if (depth == 0 && (rest_ == "$" || rest_.starts_with("$|"))) {
        rest_.remove_prefix(1);
        ended_by_dollar_ = true;
        break;
      }
      const std::string atom = this->atom(depth);
      body += (body.empty() ? "" : " ") + atom + quantifier();
    }
    return body.empty() ? "\"\"" : body;
  }

  std::string atom(int depth) {
    if (take('(')) {
      if (take('?') && !take(':')) return wrong("(?...) is not offered but for (?:...)");
      std::string body = alternatives(depth + 1);
      if (!take(')')) return wrong("a ( is not closed");
      return "(" + body + ")";
    }
    if (take('[')) return character_class();
    if (take('.')) return one_of(complement(line_ends));
    if (take('\\')) return one_of(escape());
    if (rest_.front() == '^' || rest_.front() == '$') return wrong("^ and $ are offered at the ends only");
    if (std::string_view("*+?{").find(rest_.front()) != std::string_view::npos) {
      return wrong("a quantifier has nothing before it");
    }
    return literal(next());
  }

  static std::string literal(char32_t character) {
    const std::string escaped = json_escape(character);
    return escaped.empty() ? "\"" + grammar_escape(character) + "\"" : escaped;
  }

  // What stands behind a backslash, in a class or outside.
  Ranges escape() {
    if (rest_.empty()) {
      wrong("it ends in a backslash");
      return {};
    }
    const char32_t character = next();
    switch (character) {
      case U'd':
        return digits;
      case U'D':
        return complement(digits);
      case U'w':
        return word;
      case U'W':
        return complement(word);
      case U's':
        return space;
      case U'S':
        return complement(space);
      case U'n':
        return {{U'\n', U'\n'}};
      case U'r':
        return {{U'\r', U'\r'}};
      case U't':
        return {{U'\t', U'\t'}};
      default:
        break;
    }
    if (contains(word, character) && character != U'_') wrong("this \\ escape is not offered");
    return {{character, character}};
  }

  Ranges class_member() {
    if (take('\\')) return escape();
    const char32_t character = next();
    return {{character, character}};
  }

  std::string character_class() {
    const auto single = [](const Ranges& member) { return member.size() == 1 && member[0].first == member[0].second; };
    const bool negated = take('^');
    Ranges members;
    while (error_.empty() && !take(']')) {
      if (rest_.empty()) return wrong("a [ is not closed");
      Ranges member = class_member();
      if (single(member) && rest_.size() > 1 && rest_[0] == '-' && rest_[1] != ']') {
        rest_.remove_prefix(1);
        const Ranges end = class_member();
        if (!error_.empty()) break;
        if (!single(end) || end[0].first < member[0].first) return wrong("a range in a class is not in order");
        member[0].second = end[0].first;
      }
      members.insert(members.end(), member.begin(), member.end());
    }
    if (!error_.empty()) return "\"\"";
    if (negated) members = complement(members);
    const std::string body = one_of(members);
    return body.empty() ? wrong("a class holds no character that a text can have") : body;
  }

  std::optional<std::size_t> count() {
    std::size_t value = 0;
    if (rest_.empty() || rest_.front() < '0' || rest_.front() > '9') return std::nullopt;
    for (; !rest_.empty() && rest_.front() >= '0' && rest_.front() <= '9'; rest_.remove_prefix(1)) {
      value = std::min<std::size_t>(value * 10 + static_cast<std::size_t>(rest_.front() - '0'), 1'000'000);
    }
    return value;
  }

  std::string quantifier() {
    std::string found;
    if (take('*')) {
      found = "*";
    } else if (take('+')) {
      found = "+";
    } else if (take('?')) {
      found = "?";
    } else if (take('{')) {
      const auto least = count();
      const bool range = take(',');
      const auto most = range ? count() : least;
      if (!least || !take('}')) return wrong("a {m,n} is malformed");
      if (*least > repeat_max || most.value_or(0) > repeat_max) return wrong("a {m,n} repeats too often");
      if (most && *most < *least) return wrong("a {m,n} has its bounds the wrong way round");
      found = most ? fmt::format("{{{},{}}}", *least, *most) : fmt::format("{{{},}}", *least);
    }
    if (!found.empty()) take('?');  // lazy: the language is the same
    return found;
  }

  std::string_view rest_;
  std::string_view any_;
  std::string error_;
  bool ended_by_dollar_ = false;
};

}  // namespace

std::string grammar_escape(char32_t character) {
  if ((character >= U'a' && character <= U'z') || (character >= U'A' && character <= U'Z') ||
      (character >= U'0' && character <= U'9') || character == U' ' || character == U'_') {
    return std::string(1, static_cast<char>(character));
  }
  return character <= 0xFF     ? fmt::format("\\x{:02X}", static_cast<std::uint32_t>(character))
         : character <= 0xFFFF ? fmt::format("\\u{:04X}", static_cast<std::uint32_t>(character))
                               : fmt::format("\\U{:08X}", static_cast<std::uint32_t>(character));
}

Result<std::string> regex_to_grammar(std::string_view pattern, std::string_view any) {
  return Parser(pattern, any).parse();
}

}  // namespace caravan::engine
