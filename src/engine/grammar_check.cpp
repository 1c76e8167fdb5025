#include "engine/grammar_check.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "engine/grammar_reader.h"
#include "engine/text_stream.h"

namespace caravan::engine {
namespace {

constexpr std::size_t grammar_bytes_max = std::size_t{256} << 10;
constexpr std::uint64_t openings_max = 100'000;  // ways to begin a rule: libllama walks each
constexpr std::uint64_t all_openings_max = 5'000'000;

// Which rules may be empty: grows until nothing changes, each rule being looked at again only when one it names
// changed.
std::vector<bool> empty_rules(const std::vector<GrammarRule>& rules) {
  std::vector<std::vector<RuleId>> named_by(rules.size());
  for (RuleId id = 0; id < rules.size(); ++id) {
    for (const auto& alternative : rules[id].alternatives) {
      for (const RuleId symbol : alternative) {
        if (symbol != terminal) named_by[symbol].push_back(id);
      }
    }
  }
  std::vector<bool> empty(rules.size());
  const auto may_be = [&](const GrammarRule& rule) {
    return std::ranges::any_of(rule.alternatives, [&](const auto& alternative) {
      return std::ranges::all_of(alternative, [&](RuleId symbol) { return symbol != terminal && empty[symbol]; });
    });
  };
  std::vector<RuleId> todo(rules.size());
  for (RuleId id = 0; id < rules.size(); ++id) todo[id] = id;
  while (!todo.empty()) {
    const RuleId id = todo.back();
    todo.pop_back();
    if (empty[id] || !may_be(rules[id])) continue;
    empty[id] = true;
    todo.insert(todo.end(), named_by[id].begin(), named_by[id].end());
  }
  return empty;
}

// A rule that another one may begin with.
struct Opening {
  RuleId rule = 0;
  bool grows = false;  // something stands behind it, which a parse then has to remember
  bool seen = false;   // libllama's own search for left recursion takes this step: what is before it is plainly empty
};

std::vector<std::vector<Opening>> openings_of(const std::vector<GrammarRule>& rules) {
  const std::vector<bool> empty = empty_rules(rules);
  std::vector<std::vector<Opening>> openings(rules.size());
  for (RuleId id = 0; id < rules.size(); ++id) {
    for (const auto& alternative : rules[id].alternatives) {
      bool seen = true;
      for (std::size_t i = 0; i < alternative.size() && alternative[i] != terminal; ++i) {
        openings[id].push_back({.rule = alternative[i], .grows = i + 1 < alternative.size(), .seen = seen});
        if (!empty[alternative[i]]) break;
        seen = seen && std::ranges::any_of(rules[alternative[i]].alternatives, &std::vector<RuleId>::empty);
      }
    }
  }
  return openings;
}

// Walks the openings depth first, without recursion, in the manner of Tarjan: a rule that can begin with itself and
// leaves something behind is left recursion (and what libllama takes for it is refused too); the number of ways to
// begin is what libllama's walk costs.
Status check_openings(const std::vector<GrammarRule>& rules, const std::vector<std::vector<Opening>>& openings,
                      bool Opening::* forbidden) {
  constexpr std::size_t unseen = std::numeric_limits<std::size_t>::max();
  std::vector<std::size_t> number(rules.size(), unseen);
  std::vector<std::size_t> low(rules.size());
  std::vector<std::size_t> component(rules.size(), unseen);
  std::vector<std::uint64_t> ways(rules.size(), 1);
  std::vector<RuleId> open;
  std::vector<std::pair<RuleId, std::size_t>> walk;
  std::size_t numbers = 0;
  std::size_t components = 0;
  std::uint64_t all_ways = 0;
  for (RuleId start = 0; start < rules.size(); ++start) {
    if (number[start] != unseen) continue;
    walk.emplace_back(start, 0);
    while (!walk.empty()) {
      auto& [rule, next] = walk.back();
      if (next == 0 && number[rule] == unseen) {
        number[rule] = low[rule] = numbers++;
        open.push_back(rule);
      }
      if (next < openings[rule].size()) {
        const RuleId to = openings[rule][next++].rule;
        if (number[to] == unseen) {
          walk.emplace_back(to, 0);
        } else if (component[to] == unseen) {
          low[rule] = std::min(low[rule], number[to]);
        }
        continue;
      }
      const RuleId done = rule;
      walk.pop_back();
      if (!walk.empty()) low[walk.back().first] = std::min(low[walk.back().first], low[done]);
      if (low[done] == number[done]) {
        while (true) {
          const RuleId member = open.back();
          open.pop_back();
          component[member] = components;
          if (member == done) break;
        }
        ++components;
      }
      for (const Opening& opening : openings[done]) {
        ways[done] = std::min(ways[done] + ways[opening.rule], 2 * openings_max);
      }
      all_ways += ways[done];
      if (ways[done] > openings_max || all_ways > all_openings_max) {
        return fail(ErrorCode::invalid_argument, "the grammar's rule `{}` can begin in too many ways",
                    rules[done].name);
      }
    }
  }
  for (RuleId id = 0; id < rules.size(); ++id) {
    for (const Opening& opening : openings[id]) {
      if (opening.*forbidden && component[id] == component[opening.rule]) {
        return fail(ErrorCode::invalid_argument, "the grammar's rule `{}` is left-recursive: it can begin with itself",
                    rules[id].name);
      }
    }
  }
  return {};
}

}  // namespace

Status check_grammar(std::string_view grammar, const std::function<bool(std::string_view)>& is_one_token) {
  if (grammar.size() > grammar_bytes_max) {
    return fail(ErrorCode::invalid_argument, "the grammar has {} bytes; at most {}", grammar.size(), grammar_bytes_max);
  }
  if (!utf8_valid(grammar) || grammar.find('\0') != std::string_view::npos) {
    return fail(ErrorCode::invalid_argument, "the grammar is not UTF-8 without NUL");
  }
  const auto rules = read_grammar(grammar, is_one_token);
  if (!rules) return std::unexpected(rules.error());
  auto openings = openings_of(*rules);
  if (Status grown = check_openings(*rules, openings, &Opening::grows); !grown) return grown;
  for (auto& each : openings) std::erase_if(each, [](const Opening& opening) { return !opening.seen; });
  return check_openings(*rules, openings, &Opening::seen);
}

}  // namespace caravan::engine
