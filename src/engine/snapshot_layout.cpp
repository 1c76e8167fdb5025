#include "engine/snapshot_layout.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace caravan::engine {
namespace {

constexpr std::uint64_t row_bytes_max = std::uint64_t{1} << 30U;  // of a layer's row for one cell, or its state
constexpr std::uint32_t layers_max = 4096;
constexpr std::uint32_t streams_max = 256;
constexpr std::array<std::uint32_t, 2> ext_sizes{0, 12};  // none, or llama_kv_cell_ext {x, y, token}

}  // namespace

// Walks over bytes; once it has run out, every further read fails.
class SnapshotLayout::Reader {
 public:
  explicit Reader(Bytes bytes) : bytes_(bytes) {}

  template <class Value>
  std::optional<Value> read() {
    const auto found = take(sizeof(Value));
    if (!found) return std::nullopt;
    Value value{};
    std::memcpy(&value, found->data(), sizeof(value));
    return value;
  }
  template <class Value>
  bool is(Value expected) {
    return read<Value>() == expected;
  }
  std::optional<Bytes> take(std::uint64_t length) {
    if (length > bytes_.size() - at_) return std::nullopt;
    const Bytes found = bytes_.subspan(at_, length);
    at_ += length;
    return found;
  }
  [[nodiscard]] std::size_t at() const { return at_; }
  [[nodiscard]] Bytes since(std::size_t begin) const { return bytes_.subspan(begin, at_ - begin); }
  [[nodiscard]] bool done() const { return at_ == bytes_.size(); }

 private:
  Bytes bytes_;
  std::size_t at_ = 0;
};

class SnapshotLayout::Writer {
 public:
  explicit Writer(std::span<std::byte> to) : to_(to) {}

  template <class Value>
  void write(Value value) {
    put(std::as_bytes(std::span(&value, 1)));
  }
  void put(Bytes bytes) {
    CHECK(bytes.size() <= to_.size() - at_);
    if (!bytes.empty()) std::memcpy(to_.data() + at_, bytes.data(), bytes.size());
    at_ += bytes.size();
  }
  void finish() const { CHECK(at_ == to_.size()); }

 private:
  std::span<std::byte> to_;
  std::size_t at_ = 0;
};

// ---- learning ----

std::optional<SnapshotLayout> SnapshotLayout::learn(Bytes state, std::uint32_t cells) {
  CHECK(cells > 0);
  SnapshotLayout layout;
  Reader reader(state);
  const auto magic = reader.read<std::uint32_t>();
  if (!magic || !reader.read<std::int32_t>()) return std::nullopt;
  layout.magic_ = *magic;
  if (!layout.learn_parts(reader, cells)) return std::nullopt;
  // The proof: what was learned describes these very bytes.
  if (layout.state_bytes(cells) != state.size() || !layout.fits_state(state, 0, cells)) return std::nullopt;
  return layout;
}

// Tries what a part may be until the bytes come out even; a wrong guess fails within a few words.
bool SnapshotLayout::learn_parts(Reader reader, std::uint32_t cells) {
  if (reader.done()) return !parts_.empty();
  if (parts_.size() == cell_parts_) {
    for (const std::uint32_t ext_bytes : ext_sizes) {
      for (const bool with_values : {true, false}) {
        Reader ahead = reader;
        std::uint32_t streams = 0;
        bool transposed = v_transposed_;
        auto part = learn_cells(ahead, cells, streams, transposed, ext_bytes, with_values);
        if (!part || (cell_parts_ > 0 && streams != streams_)) continue;
        const std::uint32_t streams_before = std::exchange(streams_, streams);
        const bool transposed_before = std::exchange(v_transposed_, transposed);
        parts_.push_back(std::move(*part));
        ++cell_parts_;
        if (learn_parts(ahead, cells)) return true;
        parts_.pop_back();
        --cell_parts_;
        streams_ = streams_before;
        v_transposed_ = transposed_before;
      }
    }
  }
  auto part = learn_recurrent(reader);
  if (!part || !reader.done()) return false;
  parts_.push_back(std::move(*part));
  return true;
}

std::optional<SnapshotLayout::Part> SnapshotLayout::learn_cells(Reader& reader, std::uint32_t cells,
                                                                std::uint32_t& streams, bool& transposed,
                                                                std::uint32_t ext_bytes, bool with_values) {
  const auto stream_count = reader.read<std::uint32_t>();
  if (!stream_count || *stream_count == 0 || *stream_count > streams_max) return std::nullopt;
  streams = *stream_count;
  Part part{.ext_bytes = ext_bytes};
  for (std::uint32_t stream = 0; stream < streams; ++stream) {
    const auto count = reader.read<std::uint32_t>();
    if (!count || (*count != 0 && *count != cells)) return std::nullopt;
    if (*count == 0) continue;
    if (!part.sections.empty()) return std::nullopt;  // one sequence, one stream
    for (std::uint32_t cell = 0; cell < cells; ++cell) {
      if (!reader.is(static_cast<std::int32_t>(cell)) || !reader.is(std::uint32_t{1}) || !reader.take(ext_bytes) ||
          !reader.read<std::int32_t>()) {
        return std::nullopt;
      }
    }
    std::size_t words = reader.at();
    const auto v_transposed = reader.read<std::uint32_t>();
    const auto layers = reader.read<std::uint32_t>();
    if (!v_transposed || *v_transposed > 1 || !layers || *layers == 0 || *layers > layers_max) return std::nullopt;
    if (with_values) transposed = *v_transposed != 0;
    for (std::uint32_t layer = 0; layer < *layers * (with_values ? 2 : 1); ++layer) {
      const bool by_element = layer >= *layers && *v_transposed != 0;
      Section section{.rows = 1};
      if (!reader.read<std::int32_t>()) return std::nullopt;
      if (by_element) {
        const auto element = reader.read<std::uint32_t>();
        const auto rows = reader.read<std::uint32_t>();
        if (!element || !rows || *element == 0 || *element > 8 || *rows == 0 || *rows > row_bytes_max) {
          return std::nullopt;
        }
        section.rows = *rows;
        section.cell_bytes = *element;
      } else {
        const auto row = reader.read<std::uint64_t>();
        if (!row || *row == 0 || *row > row_bytes_max) return std::nullopt;
        section.cell_bytes = *row;
      }
      const Bytes seen = reader.since(words);
      section.words.assign(seen.begin(), seen.end());
      if (!reader.take(section.rows * section.cell_bytes * cells)) return std::nullopt;
      words = reader.at();
      part.sections.push_back(std::move(section));
    }
  }
  if (part.sections.empty()) return std::nullopt;
  return part;
}

std::optional<SnapshotLayout::Part> SnapshotLayout::learn_recurrent(Reader& reader) {
  if (!reader.is(std::uint32_t{1}) || !reader.read<std::int32_t>() || !reader.is(std::uint32_t{0})) return std::nullopt;
  Part part{.recurrent = true};
  std::size_t words = reader.at();
  if (!reader.is(std::uint32_t{0}) || !reader.read<std::uint32_t>()) return std::nullopt;
  while (!reader.done()) {
    const auto type = reader.read<std::int32_t>();
    const auto row = reader.read<std::uint64_t>();
    // A layer without an S (short convolutions) has a row of nothing.
    if (!type || !row || *row > row_bytes_max || part.sections.size() > 2 * layers_max) {
      return std::nullopt;
    }
    const Bytes seen = reader.since(words);
    if (!reader.take(*row)) return std::nullopt;
    part.sections.push_back({.words = {seen.begin(), seen.end()}, .rows = 1, .cell_bytes = *row});
    words = reader.at();
  }
  if (part.sections.empty()) return std::nullopt;
  return part;
}

// ---- sizes ----

std::size_t SnapshotLayout::part_bytes(const Part& part, std::uint32_t cells, std::uint32_t streams) const {
  std::size_t bytes = 0;
  for (const Section& section : part.sections) {
    const bool present = cells > 0 || part.recurrent;
    if (present) bytes += section.words.size() + section.rows * section.cell_bytes * cells;
  }
  if (part.recurrent) return bytes + sizeof(std::uint32_t) + cells * 2 * sizeof(std::uint32_t);
  return bytes + (1 + streams) * sizeof(std::uint32_t) + cells * (3 * sizeof(std::uint32_t) + part.ext_bytes);
}

std::size_t SnapshotLayout::size(std::uint32_t cells, std::uint32_t streams, bool recurrent) const {
  std::size_t bytes = 2 * sizeof(std::uint32_t);
  for (const Part& part : parts_) bytes += part_bytes(part, part.recurrent ? (recurrent ? 1 : 0) : cells, streams);
  return bytes;
}

// ---- checking ----

bool SnapshotLayout::fits_block(Bytes payload, std::uint32_t position, std::uint32_t cells) const {
  return fits(payload, position, cells, 1, std::nullopt);
}

bool SnapshotLayout::fits_checkpoint(Bytes payload, std::uint32_t tokens) const {
  return has_recurrent() && tokens > 0 && fits(payload, 0, 0, 1, tokens);
}

bool SnapshotLayout::fits_state(Bytes state, std::uint32_t position, std::uint32_t cells) const {
  return fits(state, position, cells, streams_, has_recurrent() ? std::optional(position + cells) : std::nullopt);
}

bool SnapshotLayout::fits(Bytes bytes, std::uint32_t position, std::uint32_t cells, std::uint32_t streams,
                          std::optional<std::uint32_t> recurrent_tokens) const {
  if (bytes.size() != size(cells, streams, recurrent_tokens.has_value())) return false;
  Reader reader(bytes);
  if (!reader.is(magic_) || !reader.read<std::int32_t>()) return false;
  for (const Part& part : parts_) {
    const bool fit = part.recurrent ? fits_recurrent(reader, part, recurrent_tokens)
                                    : fits_cells(reader, part, position, cells, streams);
    if (!fit) return false;
  }
  return reader.done();
}

bool SnapshotLayout::fits_cells(Reader& reader, const Part& part, std::uint32_t position, std::uint32_t cells,
                                std::uint32_t streams) const {
  if (!reader.is(streams)) return false;
  bool found = cells == 0;
  for (std::uint32_t stream = 0; stream < streams; ++stream) {
    const auto count = reader.read<std::uint32_t>();
    if (!count) return false;
    if (*count == 0) continue;
    if (*count != cells || found) return false;
    found = true;
    for (std::uint32_t cell = 0; cell < cells; ++cell) {
      if (!reader.is(static_cast<std::int32_t>(position + cell)) || !reader.is(std::uint32_t{1}) ||
          !reader.take(part.ext_bytes) || !reader.read<std::int32_t>()) {
        return false;
      }
    }
    for (const Section& section : part.sections) {
      const auto words = reader.take(section.words.size());
      if (!words || !std::ranges::equal(*words, section.words)) return false;
      if (!reader.take(section.rows * section.cell_bytes * cells)) return false;
    }
  }
  return found;
}

bool SnapshotLayout::fits_recurrent(Reader& reader, const Part& part, std::optional<std::uint32_t> tokens) {
  if (!reader.is(std::uint32_t{tokens ? 1U : 0U})) return false;
  if (tokens && (!reader.is(static_cast<std::int32_t>(*tokens - 1)) || !reader.is(std::uint32_t{0}))) return false;
  for (const Section& section : part.sections) {
    const auto words = reader.take(section.words.size());
    if (!words || !std::ranges::equal(*words, section.words)) return false;
    if (tokens && !reader.take(section.cell_bytes)) return false;
  }
  return true;
}

// ---- cutting and joining ----

void SnapshotLayout::write_empty(Writer& writer, const Part& part, std::uint32_t streams) {
  if (!part.recurrent) {
    writer.write(streams);
    for (std::uint32_t stream = 0; stream < streams; ++stream) writer.write(std::uint32_t{0});
    return;
  }
  writer.write(std::uint32_t{0});
  for (const Section& section : part.sections) writer.put(section.words);
}

void SnapshotLayout::make_payload(std::span<std::byte> state, std::uint32_t cells) const {
  CHECK(state_is_payload() && state.size() == block_bytes(cells));
  constexpr std::array<std::byte, sizeof(std::int32_t)> zero{};
  std::ranges::copy(zero, state.begin() + sizeof(std::uint32_t));
  std::size_t begin = 2 * sizeof(std::uint32_t);
  for (const Part& part : parts_) {
    const std::size_t each = 3 * sizeof(std::uint32_t) + part.ext_bytes;
    const std::size_t first = begin + 2 * sizeof(std::uint32_t) + each - sizeof(std::int32_t);
    for (std::uint32_t cell = 0; cell < cells; ++cell) {
      std::ranges::copy(zero, state.begin() + static_cast<std::ptrdiff_t>(first + cell * each));
    }
    begin += part_bytes(part, cells, 1);
  }
}

void SnapshotLayout::cut_block(Bytes state, std::uint32_t cells, std::uint32_t first, std::uint32_t count,
                               std::span<std::byte> payload) const {
  CHECK(first + count <= cells && payload.size() == block_bytes(count));
  Writer writer(payload);
  writer.write(magic_);
  writer.write(std::int32_t{0});
  std::size_t begin = 2 * sizeof(std::uint32_t);
  for (const Part& part : parts_) {
    if (part.recurrent) {
      write_empty(writer, part, 1);
      continue;
    }
    const std::size_t each = 3 * sizeof(std::uint32_t) + part.ext_bytes;
    const Bytes whole = state.subspan(begin, part_bytes(part, cells, streams_));
    begin += whole.size();
    writer.write(std::uint32_t{1});
    writer.write(count);
    // The cells' words stand behind the counts of the streams up to theirs; those behind it are at the end.
    std::size_t at = sizeof(std::uint32_t);
    for (std::uint32_t stream = 0; stream < streams_; ++stream) {
      std::uint32_t held = 0;
      std::memcpy(&held, whole.data() + at, sizeof(held));
      at += sizeof(held);
      if (held != 0) break;
    }
    for (std::uint32_t cell = first; cell < first + count; ++cell) {
      writer.put(whole.subspan(at + cell * each, each - sizeof(std::int32_t)));
      writer.write(std::int32_t{0});
    }
    at += cells * each;
    for (const Section& section : part.sections) {
      writer.put(section.words);
      at += section.words.size();
      for (std::uint32_t row = 0; row < section.rows; ++row) {
        writer.put(whole.subspan(at + first * section.cell_bytes, count * section.cell_bytes));
        at += cells * section.cell_bytes;
      }
    }
  }
  writer.finish();
}

void SnapshotLayout::cut_checkpoint(Bytes state, std::uint32_t cells, std::span<std::byte> payload) const {
  CHECK(has_recurrent() && payload.size() == checkpoint_bytes());
  Writer writer(payload);
  writer.write(magic_);
  writer.write(std::int32_t{0});
  std::size_t begin = 2 * sizeof(std::uint32_t);
  for (const Part& part : parts_) {
    if (part.recurrent) {
      writer.put(state.subspan(begin, part_bytes(part, 1, 1)));
    } else {
      write_empty(writer, part, 1);
      begin += part_bytes(part, cells, streams_);
    }
  }
  writer.finish();
}

std::vector<std::byte> SnapshotLayout::join(std::span<const Bytes> blocks, std::uint32_t cells) const {
  const auto total = static_cast<std::uint32_t>(blocks.size()) * cells;
  std::vector<std::byte> state(size(total, streams_, false));
  Writer writer(state);
  writer.write(magic_);
  writer.write(std::int32_t{0});
  std::size_t begin = 2 * sizeof(std::uint32_t);
  for (const Part& part : parts_) {
    if (part.recurrent) {
      write_empty(writer, part, streams_);
      continue;
    }
    const std::size_t each = 3 * sizeof(std::uint32_t) + part.ext_bytes;
    writer.write(streams_);
    writer.write(total);
    for (std::size_t block = 0; block < blocks.size(); ++block) {
      writer.put(blocks[block].subspan(begin + 2 * sizeof(std::uint32_t), cells * each));
    }
    std::size_t at = begin + 2 * sizeof(std::uint32_t) + cells * each;
    for (const Section& section : part.sections) {
      writer.put(section.words);
      at += section.words.size();
      for (std::uint32_t row = 0; row < section.rows; ++row) {
        for (const Bytes block : blocks) writer.put(block.subspan(at, cells * section.cell_bytes));
        at += cells * section.cell_bytes;
      }
    }
    for (std::uint32_t stream = 1; stream < streams_; ++stream) writer.write(std::uint32_t{0});
    begin += part_bytes(part, cells, 1);
  }
  writer.finish();
  return state;
}

std::vector<std::byte> SnapshotLayout::with_streams(Bytes checkpoint) const {
  std::vector<std::byte> state(size(0, streams_, true));
  Writer writer(state);
  writer.write(magic_);
  writer.write(std::int32_t{0});
  std::size_t begin = 2 * sizeof(std::uint32_t);
  for (const Part& part : parts_) {
    const std::size_t bytes = part_bytes(part, part.recurrent ? 1 : 0, 1);
    if (part.recurrent) {
      writer.put(checkpoint.subspan(begin, bytes));
    } else {
      write_empty(writer, part, streams_);
    }
    begin += bytes;
  }
  writer.finish();
  return state;
}

}  // namespace caravan::engine
