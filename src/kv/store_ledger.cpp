#include "kv/store_ledger.h"

#include <bit>
#include <cstring>
#include <string_view>
#include <vector>

#include "base/check.h"

namespace caravan::kv {
namespace {

static_assert(std::endian::native == std::endian::little, "records are written and read as little-endian memory");

constexpr std::uint64_t page_bytes = 4096;
constexpr std::uint64_t page_header_bytes = 16;
constexpr std::uint64_t trees_bytes_a_block = 512;  // entries of frames, meta and order, in pages two thirds full

constexpr std::size_t order_id_offset = 12;
using OrderKey = std::array<std::uint8_t, order_id_offset + sizeof(BlockId)>;

// Big-endian, so that LMDB's order of bytes is the order of eviction.
OrderKey order_key(const BlockRecord& record, const BlockId& id) {
  const std::uint64_t stamp = __builtin_bswap64(record.stamp);
  const std::uint32_t shallowness = __builtin_bswap32(~record.depth);
  OrderKey key;
  std::memcpy(key.data(), &stamp, sizeof(stamp));
  std::memcpy(key.data() + sizeof(stamp), &shallowness, sizeof(shallowness));
  std::memcpy(key.data() + order_id_offset, id.bytes.data(), id.bytes.size());
  return key;
}

Bytes bytes_of(const OrderKey& key) { return std::as_bytes(std::span(key)); }
Bytes state_key() { return std::as_bytes(std::span(std::string_view("state"))); }

template <class T>
T read(Bytes value) {
  T read;
  std::memcpy(&read, value.data(), sizeof(read));
  return read;
}
// All keys of a table have one length, so a zero behind one makes the next.
template <class Visit>
void for_each_entry(Transaction& transaction, Table table, const Visit& visit) {
  std::vector<std::byte> next;
  for (auto entry = transaction.first(table); entry; entry = transaction.first(table, next)) {
    next.assign(entry->key.begin(), entry->key.end());
    next.push_back(std::byte{0});
    visit(*entry);
  }
}

template <class T>
Bytes bytes_of_record(const T& record) {
  return std::as_bytes(std::span(&record, 1));
}

}  // namespace

std::uint64_t cost_of(std::uint64_t frame_bytes) {
  return (frame_bytes + page_header_bytes + page_bytes - 1) / page_bytes * page_bytes + trees_bytes_a_block;
}

Ledger::Ledger(Transaction& transaction) : transaction_(transaction) {
  const auto state = read_state(transaction);
  if (!state || state->version != store_version) {
    transaction.fail(StoreFault::damaged);
  } else if (state->moved != 0) {
    transaction.fail(StoreFault::stale);
  } else {
    state_ = *state;
  }
}

std::optional<StoreState> Ledger::read_state(Transaction& transaction) {
  const auto value = transaction.find(Table::state, state_key());
  if (!value || value->size() < sizeof(StoreState)) return std::nullopt;
  return read<StoreState>(*value);
}

void Ledger::write_state(Transaction& transaction, const StoreState& state) {
  transaction.put(Table::state, state_key(), bytes_of_record(state));
}

std::optional<Ledger::Block> Ledger::read_entry(const Transaction::Entry& entry) {
  if (entry.key.size() != sizeof(BlockId) || entry.value.size() != sizeof(BlockRecord)) return std::nullopt;
  return Block{.id = read<BlockId>(entry.key), .record = read<BlockRecord>(entry.value)};
}

bool Ledger::agrees(Transaction& transaction) {
  const auto state = read_state(transaction);
  if (!state) return false;
  StoreState sums;
  std::uint64_t pinned = 0;
  bool agree = true;
  for_each_entry(transaction, Table::meta, [&](const Transaction::Entry& entry) {
    const Block block = read_entry(entry).value_or(Block());
    const auto& [id, record] = block;
    const auto frame = transaction.find(Table::frames, key_of(id));
    const bool ordered = transaction.find(Table::order, bytes_of(order_key(record, id))).has_value();
    agree = agree && frame && frame->size() == record.frame_bytes && ordered == (record.pinned == 0);
    ++sums.blocks;
    sums.bytes += cost_of(record.frame_bytes);
    sums.frame_bytes += record.frame_bytes;
    if (record.pinned == 0) return;
    ++pinned;
    sums.pinned_bytes += cost_of(record.frame_bytes);
  });
  std::uint64_t frames = 0;
  std::uint64_t ordered = 0;
  for_each_entry(transaction, Table::frames, [&](const Transaction::Entry&) { ++frames; });
  for_each_entry(transaction, Table::order, [&](const Transaction::Entry&) { ++ordered; });
  return agree && !transaction.fault() && frames == sums.blocks && ordered + pinned == sums.blocks &&
         state->blocks == sums.blocks && state->bytes == sums.bytes && state->frame_bytes == sums.frame_bytes &&
         state->pinned_bytes == sums.pinned_bytes;
}

std::optional<BlockRecord> Ledger::find(const BlockId& id) {
  const auto value = transaction_.find(Table::meta, key_of(id));
  if (!value) return std::nullopt;
  if (value->size() != sizeof(BlockRecord)) {
    transaction_.fail(StoreFault::damaged);
    return std::nullopt;
  }
  return read<BlockRecord>(*value);
}

void Ledger::write(const BlockId& id, const BlockRecord& record) {
  transaction_.put(Table::meta, key_of(id), bytes_of_record(record));
  if (record.pinned == 0) transaction_.put(Table::order, bytes_of(order_key(record, id)), {});
}

void Ledger::advance() {
  ++state_.stamp;
  state_.stamp_bytes = 0;
}

std::span<std::byte> Ledger::insert(const BlockId& id, const FrameHeader& header, std::uint64_t frame_bytes) {
  CHECK(!find(id));
  const std::uint64_t cost = cost_of(frame_bytes);
  if (state_.stamp_bytes + cost > advance_bytes_) advance();
  state_.stamp_bytes += cost;
  refresh(header.parent);
  const auto parent = find(header.parent);
  write(id, {.frame_bytes = frame_bytes,
             .stamp = state_.stamp,
             .depth = parent ? parent->depth + 1 : 0,
             .namespace_id = header.namespace_id,
             .parent = header.parent});
  ++state_.blocks;
  state_.bytes += cost;
  state_.frame_bytes += frame_bytes;
  return transaction_.reserve(Table::frames, key_of(id), frame_bytes);
}

bool Ledger::remove(const BlockId& id) {
  const auto record = find(id);
  if (!record) return false;
  transaction_.erase(Table::meta, key_of(id));
  transaction_.erase(Table::frames, key_of(id));
  transaction_.erase(Table::order, bytes_of(order_key(*record, id)));
  const std::uint64_t cost = cost_of(record->frame_bytes);
  if (state_.blocks == 0 || state_.bytes < cost || state_.frame_bytes < record->frame_bytes) {
    transaction_.fail(StoreFault::damaged);
    return false;
  }
  --state_.blocks;
  state_.bytes -= cost;
  state_.frame_bytes -= record->frame_bytes;
  if (record->pinned != 0) state_.pinned_bytes -= cost;
  return true;
}

// The block and those before it, up to one that has the present stamp: then those before that have it as well. So a
// chain costs its length once a stamp, however many of its blocks are used; and a loop in damaged records ends.
void Ledger::refresh(BlockId id) {
  for (auto record = find(id); record && record->stamp != state_.stamp; record = find(id)) {
    transaction_.erase(Table::order, bytes_of(order_key(*record, id)));
    record->stamp = state_.stamp;
    write(id, *record);
    id = record->parent;
  }
}

void Ledger::use(std::span<const BlockId> ids) {
  advance();
  for (const BlockId& id : ids) {
    refresh(id);
    auto record = find(id);
    if (!record) continue;
    ++record->uses;
    write(id, *record);
  }
}

std::uint64_t Ledger::evict_to(std::uint64_t bytes, std::uint64_t most) {
  std::uint64_t gone = 0;
  while (state_.bytes > bytes && gone < most) {
    const auto entry = transaction_.first(Table::order);
    if (!entry) break;
    if (entry->key.size() != sizeof(OrderKey)) {
      transaction_.fail(StoreFault::damaged);
      break;
    }
    const auto key = read<OrderKey>(entry->key);
    const auto id = read<BlockId>(Bytes(std::as_bytes(std::span(key))).subspan(order_id_offset));
    if (!remove(id) || transaction_.erase(Table::order, bytes_of(key))) {
      transaction_.fail(StoreFault::damaged);  // the order names what is not there, or as it is not
      break;
    }
    ++gone;
  }
  return gone;
}

bool Ledger::pin(const BlockId& id, std::uint64_t pinned_bytes_max) {
  auto record = find(id);
  if (!record) return false;
  if (record->pinned != 0) return true;
  const std::uint64_t cost = cost_of(record->frame_bytes);
  if (state_.pinned_bytes + cost > pinned_bytes_max) return false;
  transaction_.erase(Table::order, bytes_of(order_key(*record, id)));
  record->pinned = 1;
  write(id, *record);
  state_.pinned_bytes += cost;
  return true;
}

bool Ledger::unpin(const BlockId& id) {
  auto record = find(id);
  if (!record) return false;
  if (record->pinned == 0) return true;
  record->pinned = 0;
  write(id, *record);
  state_.pinned_bytes -= cost_of(record->frame_bytes);
  return true;
}

}  // namespace caravan::kv
