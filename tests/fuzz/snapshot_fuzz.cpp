// Payloads on their way to libllama, which aborts on a state that does not fit: what the layout accepts says nothing
// but what a payload may say, and any bytes may be learned from.
//
// The first byte chooses a model's layout, the second what is done. With 0 the rest is learned from as it is; else it
// is changes, {u16 place, u8 xor} each, to a payload that fits.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/check.h"
#include "engine/snapshot_layout.h"

namespace {

using caravan::engine::SnapshotLayout;
using Buffer = std::vector<std::byte>;

constexpr std::uint32_t cells = 3;
constexpr std::uint32_t position = 6;  // of the block; the checkpoint is behind it
constexpr std::uint32_t layers = 2;

// A sequence's state as libllama writes it; see engine/snapshot_layout.h.
struct Shape {
  std::uint32_t streams = 1;
  std::uint32_t cell_parts = 1;
  std::uint32_t ext_bytes = 0;
  bool with_values = true;
  bool transposed = false;
  bool recurrent = false;
};
constexpr std::array shapes = {
    Shape{},
    Shape{.streams = 3},
    Shape{.transposed = true},
    Shape{.cell_parts = 2},
    Shape{.with_values = false},
    Shape{.ext_bytes = 12},
    Shape{.cell_parts = 0, .recurrent = true},
    Shape{.recurrent = true},
    Shape{.streams = 3, .transposed = true, .recurrent = true},
};

class StateWriter {
 public:
  template <class Value>
  void put(Value value) {
    const auto bytes = std::as_bytes(std::span(&value, 1));
    state_.insert(state_.end(), bytes.begin(), bytes.end());
  }
  // Data in which every byte is another than its neighbours.
  void fill(std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; ++i) state_.push_back(std::byte(17 * state_.size() + 5));
  }
  Buffer take() { return std::move(state_); }

 private:
  Buffer state_;
};

void put_cells(StateWriter& writer, const Shape& shape, std::uint32_t first) {
  writer.put(shape.streams);
  for (std::uint32_t stream = 0; stream + 1 < shape.streams; ++stream) writer.put(std::uint32_t{0});
  writer.put(cells);
  for (std::uint32_t cell = 0; cell < cells; ++cell) {
    writer.put(first + cell);
    writer.put(std::uint32_t{1});
    writer.fill(shape.ext_bytes);
    writer.put(std::int32_t{0});
  }
  writer.put(std::uint32_t{shape.transposed ? 1U : 0U});
  writer.put(layers);
  for (std::uint32_t layer = 0; layer < layers * (shape.with_values ? 2 : 1); ++layer) {
    constexpr std::uint32_t row_bytes = 8;
    writer.put(std::int32_t{1});
    if (layer >= layers && shape.transposed) {
      writer.put(std::uint32_t{2});
      writer.put(row_bytes / 2);
    } else {
      writer.put(std::uint64_t{row_bytes});
    }
    writer.fill(std::size_t{row_bytes} * cells);
  }
}

void put_recurrent(StateWriter& writer, std::uint32_t tokens) {
  writer.put(std::uint32_t{1});
  writer.put(tokens - 1);
  writer.put(std::uint32_t{0});
  writer.put(std::uint32_t{0});
  writer.put(layers);
  for (std::uint32_t layer = 0; layer < 2 * layers; ++layer) {
    writer.put(std::int32_t{0});
    writer.put(std::uint64_t{12});
    writer.fill(12);
  }
}

Buffer state_of(const Shape& shape, std::uint32_t first) {
  StateWriter writer;
  writer.put(std::uint32_t{0x71736767});
  writer.put(std::int32_t{0});
  for (std::uint32_t part = 0; part < shape.cell_parts; ++part) put_cells(writer, shape, first);
  if (shape.recurrent) put_recurrent(writer, first + cells);
  return writer.take();
}

// What a tier would hold of that state: the block, and the checkpoint behind it.
struct Model {
  explicit Model(const Shape& shape) {
    auto learned = SnapshotLayout::learn(state_of(shape, 0), cells);
    CHECK(learned && learned->has_cells() == (shape.cell_parts > 0) && learned->has_recurrent() == shape.recurrent);
    layout = std::move(*learned);
    const Buffer state = state_of(shape, position);
    CHECK(layout.fits_state(state, position, cells));
    if (layout.has_cells()) {
      block.resize(layout.block_bytes(cells));
      layout.cut_block(state, cells, 0, cells, block);
      CHECK(layout.fits_block(block, position, cells));
    }
    if (layout.has_recurrent()) {
      checkpoint.resize(layout.checkpoint_bytes());
      layout.cut_checkpoint(state, cells, checkpoint);
      CHECK(layout.fits_checkpoint(checkpoint, position + cells));
    }
  }
  SnapshotLayout layout;
  Buffer block;
  Buffer checkpoint;
};

void change(Buffer& payload, std::span<const std::uint8_t> changes) {
  for (; changes.size() >= 3; changes = changes.subspan(3)) {
    const std::size_t place = changes[0] | changes[1] << 8U;
    if (place < payload.size()) {
      payload[place] ^= std::byte(changes[2]);
    } else {  // another length
      payload.resize(payload.size() + changes[2] - std::min<std::size_t>(128, payload.size()));
    }
  }
}

// Joined and cut again, a block is what it was, but for the sequence ids that libllama does not look at.
void check_block(const Model& model, const Buffer& payload) {
  const SnapshotLayout& layout = model.layout;
  if (!layout.fits_block(payload, position, cells)) return;
  CHECK(payload.size() == model.block.size());
  CHECK(!layout.fits_block(payload, position + 1, cells) && !layout.fits_block(payload, position, cells - 1));
  const SnapshotLayout::Bytes view = payload;
  const Buffer state = layout.join(std::span(&view, 1), cells);
  if (!layout.has_recurrent()) CHECK(layout.fits_state(state, position, cells));
  Buffer cut(payload.size());
  layout.cut_block(state, cells, 0, cells, cut);
  CHECK(layout.fits_block(cut, position, cells));
  Buffer again(payload.size());
  const SnapshotLayout::Bytes cut_view = cut;
  layout.cut_block(layout.join(std::span(&cut_view, 1), cells), cells, 0, cells, again);
  CHECK(cut == again);
}

void check_checkpoint(const Model& model, const Buffer& payload) {
  const SnapshotLayout& layout = model.layout;
  if (!layout.fits_checkpoint(payload, position + cells)) return;
  CHECK(payload.size() == model.checkpoint.size());
  CHECK(!layout.fits_checkpoint(payload, position) && !layout.fits_checkpoint(payload, 0));
  const Buffer state = layout.with_streams(payload);
  Buffer cut(payload.size());
  layout.cut_checkpoint(state, 0, cut);
  CHECK(layout.fits_checkpoint(cut, position + cells));
}

}  // namespace

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer's
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::vector<Model> models(shapes.begin(), shapes.end());
  if (size < 2) return 0;
  const Model& model = models[data[0] % models.size()];
  const std::span<const std::uint8_t> rest(data + 2, size - 2);
  if (data[1] == 0) {
    const auto learned = SnapshotLayout::learn(std::as_bytes(rest), cells);
    if (learned) CHECK(learned->fits_state(std::as_bytes(rest), 0, cells));
    return 0;
  }
  Buffer block = model.block;
  change(block, rest);
  check_block(model, block);
  Buffer checkpoint = model.checkpoint;
  change(checkpoint, rest);
  check_checkpoint(model, checkpoint);
  return 0;
}
