// Which block a full tier gives up, and whether a newcomer is worth one.
//
// Pure: it is told what happens and when, and answers; no clock, no locks, no bytes. One object for the blocks of one
// size. Entries are numbered by the caller, densely from 0 (slots). Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace caravan::kv {

class Eviction {
 public:
  using Entry = std::uint32_t;
  static constexpr Entry none = ~Entry{0};
  static constexpr std::uint64_t bytes_an_entry = 40;

  struct Newcomer {
    std::uint64_t name = 0;  // any 64 bits of the block's id
    Entry parent = none;     // the block before it in its chain, where it is here
  };
  struct Victim {
    Entry entry = none;
    double worth = 0;  // expected uses a second, to compare with those of blocks of other sizes
  };

  // `now` in seconds of any clock that does not go back.
  void insert(Entry entry, const Newcomer& newcomer, double now);
  void touch(Entry entry, double now);  // a request used it
  void erase(Entry entry, double now);  // gone, for whatever reason
  // What to give up: never a block with a child here, nor one that `held` holds. None: there is no such.
  [[nodiscard]] std::optional<Victim> victim(double now, const std::function<bool(Entry)>& held);
  // Whether to give up `victim` for `newcomer`.
  [[nodiscard]] bool admit(const Newcomer& newcomer, const Victim& victim, double now);
  [[nodiscard]] std::uint64_t bytes() const;  // of its own memory

 private:
  struct Node {
    double used = 0;
    Entry parent = none;
    std::uint32_t children = 0;
    bool here = false;
  };
  std::vector<Node> nodes_;
  std::set<std::pair<double, Entry>> leaves_;
};

}  // namespace caravan::kv
