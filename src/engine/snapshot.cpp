#include "engine/snapshot.h"

#include <algorithm>
#include <utility>

#include <llama.h>

#include "base/check.h"
#include "engine/llama_batch.h"
#include "engine/model.h"

namespace caravan::engine {
namespace {

constexpr std::size_t checkpoint_bytes_per_token_max = std::size_t{64} << 10U;
constexpr std::uint32_t probe_cells = 3;

std::uint8_t* writable(std::span<std::byte> bytes) { return reinterpret_cast<std::uint8_t*>(bytes.data()); }
const std::uint8_t* readable(Snapshot::Bytes bytes) { return reinterpret_cast<const std::uint8_t*>(bytes.data()); }

}  // namespace

Snapshot::Snapshot(KvPool& pool, const Model& model, std::uint32_t block_tokens)
    : pool_(pool), block_tokens_(block_tokens) {
  obstacle_ = probe(model);
  if (!obstacle_.empty()) layout_.reset();
  for (std::uint32_t sequence = 0; sequence < pool_.sequences(); ++sequence) pool_.clear(sequence);
}

std::string Snapshot::probe(const Model& model) {
  if (pool_.cut() == Cut::window) return "in streams, layers with a sliding window keep no whole blocks";
  LlamaBatch batch(probe_cells);
  const llama_token bos = llama_vocab_bos(model.vocabulary());
  for (std::uint32_t i = 0; i < probe_cells; ++i) {
    batch.add(i == 0 && bos != LLAMA_TOKEN_NULL ? bos : static_cast<Token>(i), i, 0, i + 1 == probe_cells);
  }
  if (llama_decode(pool_.context(), batch.get()) != 0 || !pool_.decoded(0, probe_cells)) {
    return "the model decodes nothing at start";
  }
  const Bytes state = state_of(0);
  layout_ = SnapshotLayout::learn(state, probe_cells);
  if (!layout_) return "libllama keeps this model's state in a form that is not known here";
  if (layout_->has_cells() && layout_->has_recurrent() == false && pool_.cut() == Cut::at_end) {
    return "libllama's state of this model lacks what its memory says it has";
  }
  return prove_round_trip(probe_cells);
}

// Captured, restored into another sequence and captured again, the bytes are the same.
std::string Snapshot::prove_round_trip(std::uint32_t cells) {
  if (pool_.sequences() < 2) return {};  // nowhere to restore to, but into what is there
  const std::uint32_t block_tokens = std::exchange(block_tokens_, cells);
  const auto captured = [&](std::uint32_t sequence) {
    std::vector<std::byte> bytes(layout_->has_cells() ? block_bytes() : 0);
    std::vector<std::byte> state(layout_->has_recurrent() ? checkpoint_bytes() : 0);
    const std::span<std::byte> payload(bytes);
    bool fine = true;
    if (has_blocks()) fine = capture_blocks(sequence, 0, std::span(&payload, 1));
    if (fine && has_checkpoints()) fine = capture_checkpoint(sequence, state);
    return fine ? std::pair(std::move(bytes), std::move(state))
                : std::pair<std::vector<std::byte>, std::vector<std::byte>>();
  };
  const auto first = captured(0);
  bool same = !(first.first.empty() && first.second.empty());
  const Bytes block(first.first);
  if (same && has_blocks()) same = restore_blocks(1, 0, std::span(&block, 1)) == RestoreAnswer::restored;
  if (same && has_checkpoints()) same = restore_checkpoint(1, cells, first.second) == RestoreAnswer::restored;
  same = same && captured(1) == first;
  block_tokens_ = block_tokens;
  return same ? std::string() : "a state that was captured and restored is not the same";
}

std::uint32_t Snapshot::checkpoint_step() const {
  const std::size_t tokens = checkpoint_bytes() / checkpoint_bytes_per_token_max;
  return std::max(1U, static_cast<std::uint32_t>((tokens + block_tokens_ - 1) / block_tokens_)) * block_tokens_;
}

Snapshot::Bytes Snapshot::state_of(std::uint32_t sequence) {
  const auto id = static_cast<llama_seq_id>(sequence);
  buffer_.resize(llama_state_seq_get_size(pool_.context(), id));
  const std::size_t written = llama_state_seq_get_data(pool_.context(), writable(buffer_), buffer_.size(), id);
  return Bytes(buffer_).first(std::min(written, buffer_.size()));
}

bool Snapshot::set_state(std::uint32_t sequence, Bytes state) {
  return llama_state_seq_set_data(pool_.context(), readable(state), state.size(),
                                  static_cast<llama_seq_id>(sequence)) == state.size();
}

bool Snapshot::capture_blocks(std::uint32_t sequence, std::uint32_t first,
                              std::span<const std::span<std::byte>> payloads) {
  CHECK(has_blocks() && (first + payloads.size()) * block_tokens_ <= pool_.length(sequence));
  const auto scratch = pool_.scratch();
  if (!scratch) {
    const std::uint32_t cells = pool_.length(sequence);
    const Bytes state = state_of(sequence);
    if (!layout_->fits_state(state, 0, cells)) return false;
    for (std::uint32_t i = 0; i < payloads.size(); ++i) {
      layout_->cut_block(state, cells, (first + i) * block_tokens_, block_tokens_, payloads[i]);
    }
    return true;
  }
  for (std::uint32_t i = 0; i < payloads.size(); ++i) {
    const std::uint32_t position = (first + i) * block_tokens_;
    pool_.name_range(sequence, *scratch, position, position + block_tokens_);
    bool fine = false;
    if (layout_->state_is_payload()) {
      const std::size_t written = llama_state_seq_get_data(pool_.context(), writable(payloads[i]), payloads[i].size(),
                                                           static_cast<llama_seq_id>(*scratch));
      fine = written == payloads[i].size() && layout_->fits_state(payloads[i], position, block_tokens_);
      if (fine) layout_->make_payload(payloads[i], block_tokens_);
    } else {
      // The recurrent state comes along, wherever the sequence stands; only the cells are cut out.
      const Bytes state = state_of(*scratch);
      fine = state.size() == layout_->state_bytes(block_tokens_);
      if (fine) layout_->cut_block(state, block_tokens_, 0, block_tokens_, payloads[i]);
      fine = fine && layout_->fits_block(payloads[i], position, block_tokens_);
    }
    pool_.forget_scratch();
    if (!fine) return false;
  }
  return true;
}

bool Snapshot::capture_checkpoint(std::uint32_t sequence, std::span<std::byte> payload) {
  CHECK(has_checkpoints());
  const std::uint32_t tokens = pool_.length(sequence);
  // Of a hybrid's cells none are wanted: a scratch that names its last cell alone keeps the copy small.
  const auto scratch = layout_->has_cells() ? pool_.scratch() : std::nullopt;
  std::uint32_t cells = layout_->has_cells() ? tokens : 0;
  if (scratch) {
    pool_.name_range(sequence, *scratch, tokens - 1, tokens);
    cells = 1;
  }
  const Bytes state = state_of(scratch.value_or(sequence));
  const bool sized = state.size() == layout_->state_bytes(cells);
  if (sized) layout_->cut_checkpoint(state, cells, payload);
  if (scratch) pool_.forget_scratch();
  return sized && layout_->fits_checkpoint(payload, tokens);
}

RestoreAnswer Snapshot::restore_blocks(std::uint32_t sequence, std::uint32_t first, std::span<const Bytes> payloads) {
  CHECK(has_blocks() && pool_.length(sequence) == first * block_tokens_);
  for (std::uint32_t i = 0; i < payloads.size(); ++i) {
    if (!layout_->fits_block(payloads[i], (first + i) * block_tokens_, block_tokens_)) return RestoreAnswer::no_match;
  }
  const auto count = static_cast<std::uint32_t>(payloads.size()) * block_tokens_;
  const auto scratch = pool_.scratch();
  if (!scratch) {
    CHECK(first == 0);
    if (!set_state(sequence, layout_->join(payloads, block_tokens_))) {
      pool_.clear(sequence);
      return RestoreAnswer::failed;
    }
    return pool_.restored(sequence, count, !has_checkpoints()) ? RestoreAnswer::restored : RestoreAnswer::failed;
  }
  for (std::uint32_t i = 0; i < payloads.size(); ++i) {
    const std::uint32_t position = (first + i) * block_tokens_;
    const bool set = set_state(*scratch, payloads[i]);
    if (set) pool_.name_range(*scratch, sequence, position, position + block_tokens_);
    pool_.forget_scratch();
    if (!set || !pool_.restored(sequence, block_tokens_, !has_checkpoints())) {
      pool_.clear(sequence);
      return RestoreAnswer::failed;
    }
  }
  return RestoreAnswer::restored;
}

RestoreAnswer Snapshot::restore_checkpoint(std::uint32_t sequence, std::uint32_t tokens, Bytes payload) {
  CHECK(has_checkpoints() && (layout_->has_cells() ? pool_.length(sequence) == tokens : pool_.length(sequence) == 0));
  if (!layout_->fits_checkpoint(payload, tokens)) return RestoreAnswer::no_match;
  const bool as_it_is = !layout_->has_cells() || layout_->streams() == 1;
  const bool set = as_it_is ? set_state(sequence, payload) : set_state(sequence, layout_->with_streams(payload));
  if (!set || !pool_.restored(sequence, layout_->has_cells() ? 0 : tokens, true)) {
    pool_.clear(sequence);
    return RestoreAnswer::failed;
  }
  return RestoreAnswer::restored;
}

}  // namespace caravan::engine
