#include "engine/grammar_reader.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include "engine/text_stream.h"

namespace caravan::engine {
namespace {

constexpr int depth_max = 200;                   // of groups: libllama's parser recurses
constexpr std::size_t rules_max = 20'000;        // with those that groups and repetitions become
constexpr std::uint64_t elements_max = 500'000;  // after repetitions are written out
constexpr std::size_t token_bytes_max = 64;
constexpr std::uint64_t repeat_max = 2'000;  // libllama's own limit

bool digit(char each) { return each >= '0' && each <= '9'; }
bool name_char(char each) {
  return (each >= 'a' && each <= 'z') || (each >= 'A' && each <= 'Z') || digit(each) || each == '-';
}

// Follows libllama's syntax, including where it allows line ends.
class Reader {
 public:
  Reader(std::string_view text, const std::function<bool(std::string_view)>& is_one_token)
      : text_(text), is_one_token_(is_one_token) {}

  Status read() {
    skip_space(true);
    while (at_ < text_.size() && error_.empty()) read_rule();
    if (!error_.empty()) {
      const auto line =
          1 + std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(std::min(at_, text_.size())), '\n');
      return fail(ErrorCode::invalid_argument, "the grammar's line {}: {}", line, error_);
    }
    for (const GrammarRule& rule : rules_) {
      if (!rule.defined) return fail(ErrorCode::invalid_argument, "the grammar has no rule `{}`", rule.name);
    }
    if (!names_.contains("root")) return fail(ErrorCode::invalid_argument, "the grammar has no rule `root`");
    return {};
  }
  std::vector<GrammarRule> take_rules() { return std::move(rules_); }

 private:
  [[nodiscard]] char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool take(char expected) {
    if (peek() != expected || at_ == text_.size()) return false;
    ++at_;
    return true;
  }
  void wrong(std::string message) {
    if (error_.empty()) error_ = std::move(message);
  }
  void skip_space(bool line_ends) {
    while (at_ < text_.size()) {
      const char each = text_[at_];
      if (each == '#') {
        while (at_ < text_.size() && text_[at_] != '\n' && text_[at_] != '\r') ++at_;
      } else if (each == ' ' || each == '\t' || (line_ends && (each == '\n' || each == '\r'))) {
        ++at_;
      } else {
        return;
      }
    }
  }
  std::string_view read_name() {
    const std::size_t begin = at_;
    while (name_char(peek())) ++at_;
    return text_.substr(begin, at_ - begin);
  }
  RuleId rule_named(std::string_view name) {
    const auto [found, added] = names_.try_emplace(std::string(name), rules_.size());
    if (added) rules_.push_back({.name = std::string(name)});
    check_rules();
    return found->second;
  }
  RuleId unnamed_rule() {
    rules_.push_back({.name = current_, .defined = true});
    check_rules();
    return rules_.size() - 1;
  }
  void check_rules() {
    if (rules_.size() > rules_max) wrong(fmt::format("the grammar becomes more than {} rules", rules_max));
  }
  void count_elements(std::uint64_t more) {
    elements_ += more;
    if (elements_ > elements_max) wrong("the grammar is too large once its repetitions are written out");
  }

  void read_rule() {
    const std::string_view name = read_name();
    if (name.empty()) return wrong("a rule's name is expected");
    current_ = name;
    skip_space(false);
    if (!text_.substr(at_).starts_with("::=")) return wrong(fmt::format("::= is expected after `{}`", name));
    at_ += 3;
    skip_space(true);
    const RuleId rule = rule_named(name);
    std::uint64_t size = 0;
    auto alternatives = read_alternatives(0, size);
    rules_[rule].alternatives = std::move(alternatives);
    rules_[rule].defined = true;
    if (!error_.empty()) return;
    if (at_ < text_.size() && peek() != '\n' && peek() != '\r') {
      return wrong(
          fmt::format("`{}` is unexpected",
                      std::string_view(&text_[at_], std::max<std::size_t>(1, utf8_step(text_.substr(at_)).length))));
    }
    skip_space(true);
  }

  std::vector<std::vector<RuleId>> read_alternatives(int depth, std::uint64_t& size) {
    std::vector<std::vector<RuleId>> all;
    if (depth > depth_max) {
      wrong(fmt::format("groups nest deeper than {}", depth_max));
      return all;
    }
    all.push_back(read_sequence(depth, size));
    while (error_.empty() && take('|')) {
      skip_space(true);
      all.push_back(read_sequence(depth, size));
    }
    return all;
  }

  // One item, before its repetition.
  struct Item {
    std::vector<RuleId> symbols;  // a literal has many, of which only the first matters
    std::uint64_t size = 0;       // elements that libllama makes of it
    std::uint64_t rules = 1;      // as libllama counts them for its limit
  };

  std::vector<RuleId> read_sequence(int depth, std::uint64_t& size) {
    std::vector<RuleId> sequence;
    while (error_.empty() && at_ < text_.size()) {
      Item item;
      const char next = peek();
      if (next == '"') {
        read_literal(item);
      } else if (next == '[') {
        read_class(item);
      } else if (next == '<' || next == '!') {
        read_token(item);
      } else if (name_char(next)) {
        item.symbols = {rule_named(read_name())};
        item.size = 1;
      } else if (next == '(') {
        ++at_;
        skip_space(true);
        const std::size_t before = rules_.size();
        const RuleId group = unnamed_rule();
        std::uint64_t inner = 0;
        auto alternatives = read_alternatives(depth + 1, inner);
        if (error_.empty() && !take(')')) wrong("a ( is not closed");
        rules_[group].alternatives = std::move(alternatives);
        item = {.symbols = {group}, .size = 1, .rules = rules_.size() - before};
      } else if (next == '.') {
        ++at_;
        item = {.symbols = {terminal}, .size = 1};
      } else if (next == '*' || next == '+' || next == '?' || next == '{') {
        wrong(fmt::format("a {} has nothing before it", next));
      } else {
        break;
      }
      skip_space(depth > 0);
      while (error_.empty() && read_repetition(item, depth)) continue;
      size += item.size;
      count_elements(item.size);
      sequence.insert(sequence.end(), item.symbols.begin(), item.symbols.end());
    }
    return sequence;
  }

  void read_literal(Item& item) {
    ++at_;
    while (error_.empty() && !take('"')) {
      if (at_ == text_.size()) return wrong("a \" is not closed");
      read_character();
      ++item.size;
    }
    if (item.size > 0) item.symbols = {terminal};
  }

  void read_class(Item& item) {
    ++at_;
    take('^');
    while (error_.empty() && !take(']')) {
      if (at_ == text_.size()) return wrong("a [ is not closed");
      const std::uint32_t low = read_character();
      ++item.size;
      if (peek() != '-' || at_ + 1 >= text_.size() || text_[at_ + 1] == ']') continue;
      ++at_;
      if (read_character() < low) wrong("a range in a [ ] is not in order");
      ++item.size;
    }
    if (error_.empty() && item.size == 0) wrong("a [ ] is empty");
    item.symbols = {terminal};
  }

  void read_token(Item& item) {
    take('!');
    const std::size_t end = text_.find('>', at_);
    if (peek() != '<' || end == std::string_view::npos) return wrong("a < is not closed by a >");
    const std::string_view token = text_.substr(at_, end + 1 - at_);
    if (token.starts_with("<[")) {
      const std::string_view id = token.substr(2, token.size() - std::min<std::size_t>(token.size(), 4));
      if (!token.ends_with("]>") || id.empty() || id.size() > 9 || !std::ranges::all_of(id, digit)) {
        return wrong("a token is <[number]> or <text>");
      }
    } else if (token.size() > token_bytes_max || !is_one_token_(token)) {
      return wrong("`<...>` is no token of this model; a control token is written as it is, like <|im_end|>");
    }
    at_ = end + 1;
    item = {.symbols = {terminal}, .size = 1};
  }

  std::uint32_t read_character() {
    if (!take('\\')) {
      const std::size_t length = utf8_step(text_.substr(at_)).length;  // the whole text is known to be UTF-8
      std::uint32_t value = static_cast<unsigned char>(text_[at_]);
      if (length > 1) value &= 0xFFU >> (length + 1);
      for (std::size_t i = 1; i < length; ++i)
        value = value << 6 | (static_cast<unsigned char>(text_[at_ + i]) & 0x3FU);
      at_ += length;
      return value;
    }
    const char kind = peek();
    ++at_;
    switch (kind) {
      case 't':
        return '\t';
      case 'r':
        return '\r';
      case 'n':
        return '\n';
      case '\\':
      case '"':
      case '[':
      case ']':
      case '-':
        return static_cast<unsigned char>(kind);
      case 'x':
        return read_hex(2);
      case 'u':
        return read_hex(4);
      case 'U':
        return read_hex(8);
      default:
        break;
    }
    wrong("an unknown \\ escape; known are \\n \\r \\t \\\\ \\\" \\[ \\] \\- \\xNN \\uNNNN \\UNNNNNNNN");
    return 0;
  }
  std::uint32_t read_hex(std::size_t digits) {
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < digits; ++i) {
      const char each = peek();
      const int part = digit(each)                  ? each - '0'
                       : each >= 'a' && each <= 'f' ? each - 'a' + 10
                       : each >= 'A' && each <= 'F' ? each - 'A' + 10
                                                    : -1;
      if (part < 0) {
        wrong(fmt::format("an escape needs {} hexadecimal digits", digits));
        return 0;
      }
      value = value << 4 | static_cast<std::uint32_t>(part);
      ++at_;
    }
    return value;
  }

  std::uint64_t read_count() {
    std::uint64_t value = 0;
    if (!digit(peek())) wrong("a number is expected in { }");
    for (; digit(peek()); ++at_)
      value = std::min<std::uint64_t>(value * 10 + static_cast<std::uint64_t>(peek() - '0'), 1'000'000'000);
    return value;
  }

  // Turns `item` into its repetition, if one follows.
  bool read_repetition(Item& item, int depth) {
    std::uint64_t least = 0;
    std::uint64_t most = 0;
    bool bounded = false;
    if (take('*')) {
    } else if (take('+')) {
      least = 1;
    } else if (take('?')) {
      most = 1;
      bounded = true;
    } else if (take('{')) {
      skip_space(depth > 0);
      least = most = read_count();
      bounded = true;
      skip_space(depth > 0);
      if (take(',')) {
        skip_space(depth > 0);
        bounded = digit(peek());
        if (bounded) most = read_count();
        skip_space(depth > 0);
      }
      if (error_.empty() && !take('}')) wrong("a { is not closed");
    } else {
      return false;
    }
    skip_space(depth > 0);
    if (!error_.empty()) return false;
    if (item.size == 0) wrong("a repetition has nothing before it");
    if (least > repeat_max || (bounded && most > repeat_max))
      wrong(fmt::format("a repetition is limited to {}", repeat_max));
    if (bounded && most < least) wrong(fmt::format("{{{},{}}} has its bounds the wrong way round", least, most));
    const std::uint64_t times = bounded && most > 0 ? most : std::max<std::uint64_t>(least, 1);
    if (item.rules * times > repeat_max)
      wrong(fmt::format("a repeated group holds repetitions: together they exceed {}", repeat_max));
    if (!error_.empty()) return false;

    const std::uint64_t optional = bounded ? most - least : 1;
    count_elements(item.size * (least + optional) + 3 * optional);
    if (!error_.empty()) return false;
    std::vector<RuleId> symbols;
    if (least > 0) symbols = item.symbols;  // how often does not matter here
    RuleId last = terminal;
    for (std::uint64_t i = 0; i < optional && error_.empty(); ++i) {
      const RuleId rest = unnamed_rule();
      std::vector<RuleId> again = item.symbols;
      if (!bounded) again.push_back(rest);
      if (bounded && i > 0) again.push_back(last);
      rules_[rest].alternatives = {std::move(again), {}};
      last = rest;
    }
    if (optional > 0) symbols.push_back(last);
    item = {
        .symbols = std::move(symbols), .size = item.size * least + (optional > 0 ? 1 : 0), .rules = item.rules * times};
    return true;
  }

  std::string_view text_;
  const std::function<bool(std::string_view)>& is_one_token_;
  std::size_t at_ = 0;
  std::string error_;
  std::string current_;
  std::map<std::string, RuleId, std::less<>> names_;
  std::vector<GrammarRule> rules_;
  std::uint64_t elements_ = 0;
};

}  // namespace

Result<std::vector<GrammarRule>> read_grammar(std::string_view grammar,
                                              const std::function<bool(std::string_view)>& is_one_token) {
  Reader reader(grammar, is_one_token);
  if (const Status read = reader.read(); !read) return std::unexpected(read.error());
  return reader.take_rules();
}

}  // namespace caravan::engine
