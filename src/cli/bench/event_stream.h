// Server-sent events out of pieces that may be cut anywhere. Pure; not thread-safe.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace caravan::cli::bench {

class EventStream {
 public:
  // The data of the events that `piece` completes, in order; comments and other fields are left out.
  std::vector<std::string> feed(std::string_view piece);
  // An event larger than this is given up: the stream is not what it says.
  static constexpr std::size_t event_bytes_max = std::size_t{16} << 20;
  [[nodiscard]] bool overflowed() const { return overflowed_; }

 private:
  void end_line(std::vector<std::string>& events);

  std::string line_;
  std::string data_;
  bool has_data_ = false;
  bool after_return_ = false;  // the last byte was \r: a \n that follows belongs to it
  bool overflowed_ = false;
};

}  // namespace caravan::cli::bench
