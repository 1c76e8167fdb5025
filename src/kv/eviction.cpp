#include "kv/eviction.h"

namespace caravan::kv {

void Eviction::insert(Entry entry, const Newcomer& newcomer, double now) {
  if (nodes_.size() <= entry) nodes_.resize(entry + 1);
  nodes_[entry] = {.used = now, .parent = newcomer.parent, .children = 0, .here = true};
  leaves_.insert({now, entry});
  if (newcomer.parent == none) return;
  Node& parent = nodes_[newcomer.parent];
  if (parent.children++ == 0) leaves_.erase({parent.used, newcomer.parent});
}

void Eviction::touch(Entry entry, double now) {
  Node& node = nodes_[entry];
  if (node.children == 0) {
    leaves_.erase({node.used, entry});
    leaves_.insert({now, entry});
  }
  node.used = now;
}

void Eviction::erase(Entry entry, double) {
  Node& node = nodes_[entry];
  leaves_.erase({node.used, entry});
  node.here = false;
  for (Node& other : nodes_) {
    if (node.children > 0 && other.here && other.parent == entry) other.parent = none;
  }
  if (node.parent == none) return;
  Node& parent = nodes_[node.parent];
  if (--parent.children == 0) leaves_.insert({parent.used, node.parent});
}

std::optional<Eviction::Victim> Eviction::victim(double now, const std::function<bool(Entry)>& held) {
  for (const auto& [used, entry] : leaves_) {
    if (!held(entry)) return Victim{.entry = entry, .worth = 1 / (1 + now - used)};
  }
  return std::nullopt;
}

bool Eviction::admit(const Newcomer&, const Victim&, double) { return true; }

std::uint64_t Eviction::bytes() const { return nodes_.capacity() * sizeof(Node) + leaves_.size() * 64; }

}  // namespace caravan::kv
