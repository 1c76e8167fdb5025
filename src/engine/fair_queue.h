// A bounded waiting line in which tenants take turns: one that sends a hundred requests does not keep another waiting
// for all of them. First come, first served within a tenant. Pure; owned by the engine thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <string>
#include <utility>

#include "base/check.h"

namespace caravan::engine {

template <class Item>
class FairQueue {
 public:
  void push_back(const std::string& tenant, Item item) { line(tenant).items.push_back(std::move(item)); }
  // For what was admitted before and had to make room: it goes first among its tenant's, and its tenant goes next.
  void push_front(const std::string& tenant, Item item) {
    Line taken{.tenant = tenant};
    if (const auto found = find(tenant); found != lines_.end()) {
      taken = std::move(*found);
      lines_.erase(found);
    }
    taken.items.push_front(std::move(item));
    lines_.push_front(std::move(taken));
  }

  [[nodiscard]] bool empty() const { return lines_.empty(); }
  [[nodiscard]] std::size_t size() const {
    std::size_t count = 0;
    for (const Line& each : lines_) count += each.items.size();
    return count;
  }

  // The item whose turn it is. Not empty.
  [[nodiscard]] Item& front() {
    CHECK(!lines_.empty());
    return lines_.front().items.front();
  }
  // Takes the front; its tenant goes to the end of the turn.
  Item pop() {
    CHECK(!lines_.empty());
    Line taken = std::move(lines_.front());
    lines_.pop_front();
    Item item = std::move(taken.items.front());
    taken.items.pop_front();
    if (!taken.items.empty()) lines_.push_back(std::move(taken));
    return item;
  }

  // Removes every item for which `gone` holds.
  template <class Predicate>
  void remove_if(Predicate gone) {
    for (Line& each : lines_) std::erase_if(each.items, gone);
    std::erase_if(lines_, [](const Line& each) { return each.items.empty(); });
  }
  template <class Function>
  void for_each(Function function) {
    for (Line& each : lines_)
      for (Item& item : each.items) function(item);
  }

 private:
  // Tenants with something waiting, in the order of their turns. Never holds an empty line.
  struct Line {
    std::string tenant;
    std::deque<Item> items;
  };

  auto find(const std::string& tenant) { return std::ranges::find(lines_, tenant, &Line::tenant); }
  Line& line(const std::string& tenant) {
    if (const auto found = find(tenant); found != lines_.end()) return *found;
    return lines_.emplace_back(Line{.tenant = tenant});
  }

  std::deque<Line> lines_;
};

}  // namespace caravan::engine
