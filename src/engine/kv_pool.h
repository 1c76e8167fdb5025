// The device tier: libllama's context, what its memory can do, and the books on who holds which cells.
//
// This and engine/snapshot are the only places that change libllama's memory. Every operation leaves libllama and the
// ledger in agreement, or the sequence empty (I8). Owned by the engine thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "engine/cell_ledger.h"
#include "engine/engine.h"
#include "engine/sizing.h"

struct llama_context;

namespace caravan::engine {

class Model;

// Where the memory of a sequence may be divided, and so what can be shared of it.
enum class Cut {
  anywhere,  // a cell a token: any beginning can be shared
  window,    // layers with a sliding window keep only that: a beginning whose window is still there
  at_end,    // recurrent state: only the whole
};

class KvPool {
 public:
  // Makes the context, falling back from a unified pool to streams where the model refuses one. `options` is completed
  // with what was chosen. Errors: unsupported or invalid_argument, one line.
  static Result<std::unique_ptr<KvPool>> create(const Model& model, EngineOptions& options);
  ~KvPool();
  KvPool(const KvPool&) = delete;
  KvPool& operator=(const KvPool&) = delete;

  [[nodiscard]] llama_context* context() const { return context_; }
  [[nodiscard]] const CellLedger& ledger() const { return ledger_; }
  [[nodiscard]] std::uint32_t sequences() const { return sequences_; }  // ids 0 .. sequences-1; the scratch is not one
  [[nodiscard]] std::uint32_t context_tokens() const { return context_tokens_; }  // longest one sequence may become
  [[nodiscard]] bool unified() const { return unified_; }
  [[nodiscard]] Cut cut() const { return cut_; }
  [[nodiscard]] const std::string& layout_note() const { return layout_note_; }
  [[nodiscard]] const ContextShape& shape() const { return shape_; }
  // Why a context shift is not possible; empty when it is.
  [[nodiscard]] std::string shift_obstacle() const;

  [[nodiscard]] std::uint32_t length(std::uint32_t sequence) const { return ledger_.length(sequence); }
  // The longest beginning of `source` of at most `wanted` tokens that can be shared now; 0: none.
  [[nodiscard]] std::uint32_t shareable(std::uint32_t source, std::uint32_t wanted) const;
  // Gives the empty `target` the first `length` tokens of `source` (a value that shareable() returned). Cells are held
  // by both in a unified pool and copied between streams. False: it did not work, and `target` is empty.
  bool share(std::uint32_t source, std::uint32_t target, std::uint32_t length);
  // Keeps the first `length` tokens. False: that cannot be done, and the sequence is empty now.
  bool trim(std::uint32_t sequence, std::uint32_t length);
  void clear(std::uint32_t sequence);
  // Lets go of [keep, keep + discard) and moves what is behind it to the front (K-shift). Only for cells that no other
  // sequence holds, since a shared cell has one position. False: not possible; nothing has changed.
  bool shift(std::uint32_t sequence, std::uint32_t keep, std::uint32_t discard);

  // Books `count` tokens that libllama has just decoded behind what `sequence` had. False: libllama does not agree; the
  // sequence is empty now.
  bool decoded(std::uint32_t sequence, std::uint32_t count);
  // For engine/snapshot, which copies states in and out. The scratch sequence names cells for a moment beside whoever
  // holds them; none between streams, where a cell has one name. It is never in the ledger.
  [[nodiscard]] std::optional<std::uint32_t> scratch() const;
  void name_range(std::uint32_t from, std::uint32_t to, std::uint32_t begin, std::uint32_t end);
  void forget_scratch();
  // Books `count` tokens that a state brought. `check`: libllama must agree now (a hybrid's sequence has no position
  // before its recurrent state is there too). False: it does not; the sequence is empty now.
  bool restored(std::uint32_t sequence, std::uint32_t count, bool check);
  // After a failed decode: false, and empty, if libllama holds anything but what the ledger says.
  bool reconcile(std::uint32_t sequence);

 private:
  [[nodiscard]] bool fault(std::string_view operation) const { return inject_fault_ && inject_fault_(operation); }
  KvPool(llama_context* context, const Model& model, const EngineOptions& options, bool unified, Cut cut,
         std::uint32_t sequences, std::uint32_t cells_total, std::uint32_t context_tokens);

  llama_context* context_;
  const Model& model_;
  bool unified_;
  Cut cut_;
  std::uint32_t window_;
  bool key_quantised_;
  std::uint32_t sequences_;
  std::uint32_t context_tokens_;
  std::string layout_note_;
  ContextShape shape_;
  std::function<bool(std::string_view)> inject_fault_;
  CellLedger ledger_;
};

}  // namespace caravan::engine
