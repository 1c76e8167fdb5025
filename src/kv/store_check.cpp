#include "kv/store_check.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

namespace caravan::kv {
namespace {

// LMDB 0.9's file, on a 64-bit little-endian machine.
constexpr std::size_t header_bytes = 16;  // of a page: number 8, pad 2, flags 2, lower 2 and upper 2, or pages 4
constexpr std::size_t node_bytes = 8;     // of an entry: size 4, flags 2, key size 2; then key and data
constexpr std::uint16_t branch_page = 1;
constexpr std::uint16_t leaf_page = 2;
constexpr std::uint16_t overflow_page = 4;
constexpr std::uint16_t meta_page = 8;
constexpr std::uint16_t node_elsewhere = 1;  // data on overflow pages
constexpr std::uint16_t node_table = 2;      // data is the head of a table
constexpr std::uint32_t meta_magic = 0xBEEFC0DE;
constexpr std::uint32_t meta_version = 1;
constexpr std::uint64_t no_page = ~std::uint64_t{0};
constexpr std::uint64_t first_page = 2;  // after both meta pages
constexpr std::uint32_t depth_max = 31;
constexpr std::uint16_t integer_key = 8;

struct TableHead {
  std::uint32_t page_bytes;  // in the table of free pages only
  std::uint16_t flags;
  std::uint16_t depth;
  std::uint64_t branch_pages;
  std::uint64_t leaf_pages;
  std::uint64_t overflow_pages;
  std::uint64_t entries;
  std::uint64_t root;
};
static_assert(sizeof(TableHead) == 48);

struct Meta {
  std::uint32_t magic;
  std::uint32_t version;
  std::uint64_t address;
  std::uint64_t map_bytes;
  TableHead free;
  TableHead main;
  std::uint64_t last_page;
  std::uint64_t transaction;
};
static_assert(sizeof(Meta) == 136);

using Bytes = std::span<const std::byte>;
using Checked = std::expected<void, std::string>;

template <class T>
T read(Bytes bytes, std::size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(value));
  return value;
}

template <class... Args>
std::unexpected<std::string> wrong(fmt::format_string<Args...> format, Args&&... args) {
  return std::unexpected(fmt::format(format, std::forward<Args>(args)...));
}

class Walk {
 public:
  Walk(Bytes file, std::size_t page_bytes) : file_(file), page_bytes_(page_bytes) {}

  Checked run() {
    if (file_.size() < first_page * page_bytes_) return wrong("it is shorter than its two meta pages");
    std::array<Meta, 2> metas{};
    for (std::uint64_t i = 0; i < 2; ++i) {
      if (flags_of(i) != meta_page) return wrong("meta page {} is none", i);
      metas[i] = read<Meta>(page(i), header_bytes);
      if (metas[i].magic != meta_magic || metas[i].version != meta_version) return wrong("it is not LMDB's");
    }
    const std::size_t newest = metas[1].transaction > metas[0].transaction ? 1 : 0;
    const Meta& meta = metas[newest];
    // The two take turns, so one is a transaction ahead, and which one follows from its number.
    if (meta.transaction - metas[1 - newest].transaction > 1 || meta.transaction % 2 != newest) {
      return wrong("its meta pages do not follow each other");
    }
    if (meta.free.page_bytes != page_bytes_) return wrong("its pages have {} bytes", meta.free.page_bytes);
    if (meta.free.flags != integer_key || meta.main.flags != 0) return wrong("its tables have unknown flags");
    if (meta.last_page == 0 || meta.last_page >= file_.size() / page_bytes_) {
      return wrong("it has {} bytes, and should have {} pages more", file_.size(),
                   meta.last_page + 1 - file_.size() / page_bytes_);
    }
    pages_ = meta.last_page + 1;
    used_.resize(pages_);
    if (auto walked = table(meta.main, Kind::main); !walked) return walked;
    return table(meta.free, Kind::free);
  }

 private:
  enum class Kind : std::uint8_t { main, free, plain };
  struct Found {
    std::uint64_t entries = 0;
    std::uint32_t depth = 0;
  };
  struct Node {
    std::uint16_t flags;
    Bytes key;
    std::uint32_t data_bytes;
    Bytes data;           // in the page; of data elsewhere: the number of its first page
    std::uint64_t child;  // in a branch
  };

  [[nodiscard]] Bytes page(std::uint64_t number) const { return file_.subspan(number * page_bytes_, page_bytes_); }
  [[nodiscard]] std::uint16_t flags_of(std::uint64_t number) const { return read<std::uint16_t>(page(number), 10); }

  Checked take(std::uint64_t first, std::uint64_t count) {
    if (first < first_page || first >= pages_ || count > pages_ - first) return wrong("page {} is not there", first);
    for (std::uint64_t number = first; number < first + count; ++number) {
      if (used_[number]) return wrong("page {} is used twice", number);
      used_[number] = true;
    }
    return {};
  }

  Checked table(const TableHead& head, Kind kind) {
    if (head.root == no_page) {
      if (head.entries != 0 || head.depth != 0) return wrong("a table has entries, but no pages");
      return {};
    }
    Found found;
    if (auto walked = tree(head.root, 1, kind, found); !walked) return walked;
    if (found.depth != head.depth || found.entries != head.entries) return wrong("a table is not as its head says");
    return {};
  }

  Checked tree(std::uint64_t number, std::uint32_t depth, Kind kind, Found& found) {
    if (auto taken = take(number, 1); !taken) return taken;
    if (depth > depth_max) return wrong("a tree is too deep");
    const Bytes bytes = page(number);
    const std::uint16_t flags = flags_of(number);
    const bool is_leaf = flags == leaf_page;
    const auto lower = read<std::uint16_t>(bytes, 12);
    const auto upper = read<std::uint16_t>(bytes, 14);
    const bool sound = (is_leaf || flags == branch_page) && read<std::uint64_t>(bytes, 0) == number &&
                       lower >= header_bytes && lower % 2 == 0 && lower <= upper && upper <= page_bytes_;
    const std::size_t count = sound ? (lower - header_bytes) / 2 : 0;
    if (count < (is_leaf ? 1 : 2)) return wrong("page {} is not a tree's", number);
    if (is_leaf) {
      if (found.depth != 0 && found.depth != depth) return wrong("page {} is at a wrong depth", number);
      found.depth = depth;
      found.entries += count;
    }
    std::size_t filled = 0;
    for (std::size_t i = 0; i < count; ++i) {
      Node node;
      const auto bytes_used = parse(bytes, read<std::uint16_t>(bytes, header_bytes + 2 * i), upper, is_leaf, node);
      if (!bytes_used) return wrong("page {} has a bad entry", number);
      filled += *bytes_used;
      if (filled > page_bytes_ - upper) return wrong("page {} has entries that overlap", number);
      if (node.key.empty() && (is_leaf || i > 0)) return wrong("page {} has an entry without key", number);
      if (auto walked = is_leaf ? leaf(node, kind) : tree(node.child, depth + 1, kind, found); !walked) return walked;
    }
    return {};
  }

  // The bytes it takes in its page.
  [[nodiscard]] std::optional<std::size_t> parse(Bytes bytes, std::size_t at, std::size_t upper, bool is_leaf,
                                                 Node& node) const {
    if (at < upper || at % 2 != 0 || at + node_bytes > page_bytes_) return std::nullopt;
    const auto size = read<std::uint32_t>(bytes, at);
    node.flags = read<std::uint16_t>(bytes, at + 4);
    const std::size_t key_bytes = read<std::uint16_t>(bytes, at + 6);
    node.child = size | std::uint64_t{node.flags} << 32U;
    node.data_bytes = size;
    const std::uint64_t in_page = !is_leaf ? 0 : node.flags == node_elsewhere ? sizeof(std::uint64_t) : size;
    const std::uint64_t end = at + node_bytes + key_bytes + in_page;
    if (end + end % 2 > page_bytes_) return std::nullopt;
    node.key = bytes.subspan(at + node_bytes, key_bytes);
    node.data = bytes.subspan(at + node_bytes + key_bytes, in_page);
    return end + end % 2 - at;
  }

  Checked leaf(const Node& node, Kind kind) {
    if (node.flags == node_table) {
      if (kind != Kind::main || node.data_bytes != sizeof(TableHead)) return wrong("a table lies where none may");
      const auto head = read<TableHead>(node.data, 0);
      if (head.flags != 0) return wrong("a table has unknown flags");
      return table(head, Kind::plain);
    }
    if (kind == Kind::main) return wrong("something other than tables lies among them");
    if (node.flags > node_elsewhere) return wrong("an entry has unknown flags");
    Bytes data = node.data;
    if (node.flags == node_elsewhere) {
      const auto first = read<std::uint64_t>(node.data, 0);
      const std::uint64_t count = (header_bytes - 1 + std::uint64_t{node.data_bytes}) / page_bytes_ + 1;
      if (auto taken = take(first, count); !taken) return taken;
      data = file_.subspan(first * page_bytes_ + header_bytes, node.data_bytes);
      if (kind == Kind::free && (flags_of(first) != overflow_page || read<std::uint32_t>(page(first), 12) != count)) {
        return wrong("page {} is not the first of {}", first, count);
      }
    }
    return kind == Kind::free ? free_pages(node.key, data) : Checked();
  }

  Checked free_pages(Bytes key, Bytes data) {
    const std::size_t numbers = data.size() / sizeof(std::uint64_t);
    const bool sound = key.size() == sizeof(std::uint64_t) && data.size() % sizeof(std::uint64_t) == 0 && numbers > 0 &&
                       read<std::uint64_t>(data, 0) == numbers - 1;
    if (!sound) return wrong("a list of free pages is none");
    std::uint64_t last = no_page;
    for (std::size_t i = 1; i < numbers; ++i) {
      const auto number = read<std::uint64_t>(data, i * sizeof(std::uint64_t));
      if (number >= last) return wrong("a list of free pages is not in order");
      if (auto taken = take(number, 1); !taken) return taken;
      last = number;
    }
    return {};
  }

  Bytes file_;
  std::size_t page_bytes_;
  std::uint64_t pages_ = 0;
  std::vector<bool> used_;
};

class Mapping {
 public:
  explicit Mapping(const std::filesystem::path& file) {
    const int descriptor = open(file.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) return;
    const off_t size = lseek(descriptor, 0, SEEK_END);
    if (size > 0) {
      bytes_ = static_cast<std::size_t>(size);
      address_ = mmap(nullptr, bytes_, PROT_READ, MAP_SHARED, descriptor, 0);
    }
    readable_ = size == 0 || address_ != MAP_FAILED;
    close(descriptor);
  }
  ~Mapping() {
    if (address_ != MAP_FAILED) munmap(address_, bytes_);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  [[nodiscard]] bool is_readable() const { return readable_; }
  [[nodiscard]] Bytes bytes() const {
    return address_ == MAP_FAILED ? Bytes() : Bytes(static_cast<const std::byte*>(address_), bytes_);
  }

 private:
  void* address_ = MAP_FAILED;
  std::size_t bytes_ = 0;
  bool readable_ = false;
};

}  // namespace

std::expected<void, std::string> check_file(const std::filesystem::path& data) {
  const Mapping mapping(data);
  if (!mapping.is_readable()) return wrong("it cannot be read");
  if (mapping.bytes().empty()) return {};  // LMDB begins a new one
  return Walk(mapping.bytes(), static_cast<std::size_t>(sysconf(_SC_PAGESIZE))).run();
}

}  // namespace caravan::kv
