#include "engine/regex_grammar.h"

#include "engine/text_stream.h"

namespace caravan::engine {
namespace {

constexpr int depth_max = 32;
constexpr std::size_t repeat_max = 1000;

// Characters that a JSON string cannot hold as they are; classes leave them out.
constexpr std::string_view not_in_strings = R"(\x22\x5C\x00-\x1F\x7F)";

class Parser {
 public:
  Parser(std::string_view pattern, std::string_view any) : rest_(pattern), any_(any) {}

  Result<std::string> parse() {
    const bool anchored_front = take('^');
    std::string body = alternatives(0);
    const bool anchored_back = rest_.empty() && ended_by_dollar_;
    if (!error_.empty()) return fail(ErrorCode::invalid_argument, "{}", error_);
    if (!rest_.empty()) return fail(ErrorCode::invalid_argument, "'{}' is unexpected", rest_.substr(0, 1));
    const std::string anything = std::string(any_) + "*";
    return (anchored_front ? "" : anything + " ") + "(" + body + ")" + (anchored_back ? "" : " " + anything);
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
      if (rest_ == "$") {
        rest_ = {};
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
    if (take('.')) return std::string(any_);
    if (take('\\')) return escape();
    if (rest_.front() == '^' || rest_.front() == '$') return wrong("^ and $ are offered at the ends only");
    if (std::string_view("*+?{").find(rest_.front()) != std::string_view::npos)
      return wrong("a quantifier has nothing before it");
    return literal(next());
  }

  // As the character is written inside a JSON string.
  static std::string literal(char32_t character) {
    if (character == U'"') return R"("\\\"")";
    if (character == U'\\') return R"("\\\\")";
    return "\"" + grammar_escape(character) + "\"";
  }

  std::string escape() {
    if (rest_.empty()) return wrong("it ends in a backslash");
    const char32_t character = next();
    switch (character) {
      case U'd':
        return "[0-9]";
      case U'D':
        return "[^0-9" + std::string(not_in_strings) + "]";
      case U'w':
        return "[A-Za-z0-9_]";
      case U'W':
        return "[^A-Za-z0-9_" + std::string(not_in_strings) + "]";
      case U's':
        return "[ ]";
      case U'S':
        return "[^ " + std::string(not_in_strings) + "]";
      default:
        break;
    }
    const bool letter = (character >= U'a' && character <= U'z') || (character >= U'A' && character <= U'Z') ||
                        (character >= U'0' && character <= U'9');
    if (letter) return wrong("this \\ escape is not offered");
    return literal(character);
  }

  std::string character_class() {
    const bool negated = take('^');
    std::string members;
    bool first = true;
    while (error_.empty() && (first || rest_.empty() || rest_.front() != ']')) {
      first = false;
      if (rest_.empty()) return wrong("a [ is not closed");
      char32_t character = next();
      if (character == U'\\') {
        if (rest_.empty()) return wrong("it ends in a backslash");
        character = next();
        if (character == U'd') {
          members += "0-9";
          continue;
        }
        if (character == U'w') {
          members += "A-Za-z0-9_";
          continue;
        }
        if (character == U's') {
          members += " ";
          continue;
        }
      }
      if (!negated && (character == U'"' || character == U'\\'))
        return wrong("quotes and backslashes in a class are not offered");
      members += grammar_escape(character);
      if (rest_.size() > 1 && rest_[0] == '-' && rest_[1] != ']') {
        rest_.remove_prefix(1);
        const char32_t last = next();
        if (last < character || last == U'\\') return wrong("a range in a class is not in order");
        members += "-" + grammar_escape(last);
      }
    }
    take(']');
    return negated ? "[^" + members + std::string(not_in_strings) + "]" : "[" + members + "]";
  }

  std::string quantifier() {
    std::string found;
    if (take('*'))
      found = "*";
    else if (take('+'))
      found = "+";
    else if (take('?'))
      found = "?";
    else if (take('{')) {
      const std::size_t end = rest_.find('}');
      const std::string_view inner = rest_.substr(0, end);
      if (end == std::string_view::npos || inner.empty() || inner.size() > 9 ||
          inner.find_first_not_of("0123456789,") != std::string_view::npos || inner.front() == ',') {
        return wrong("a {m,n} is malformed");
      }
      for (std::size_t at = 0; at < inner.size();
           at = inner.find(',', at) == std::string_view::npos ? inner.size() : inner.find(',', at) + 1) {
        if (std::strtoul(std::string(inner.substr(at)).c_str(), nullptr, 10) > repeat_max)
          return wrong("a {m,n} repeats too often");
      }
      found = "{" + std::string(inner) + "}";
      rest_.remove_prefix(end + 1);
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
