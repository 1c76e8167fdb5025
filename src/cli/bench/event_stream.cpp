#include "cli/bench/event_stream.h"

#include <utility>

namespace caravan::cli::bench {

std::vector<std::string> EventStream::feed(std::string_view piece) {
  std::vector<std::string> events;
  for (const char c : piece) {
    const bool second_half = c == '\n' && std::exchange(after_return_, false);
    after_return_ = c == '\r';
    if (second_half) continue;
    if (c == '\n' || c == '\r') {
      end_line(events);
    } else if (line_.size() + data_.size() < event_bytes_max) {
      line_ += c;
    } else {
      overflowed_ = true;
    }
  }
  return events;
}

void EventStream::end_line(std::vector<std::string>& events) {
  std::string line = std::exchange(line_, {});
  if (line.empty()) {  // an empty line ends the event
    if (std::exchange(has_data_, false)) events.push_back(std::exchange(data_, {}));
    return;
  }
  if (line.starts_with("\xEF\xBB\xBF")) line.erase(0, 3);
  if (!line.starts_with("data")) return;
  std::string_view value = std::string_view(line).substr(4);
  if (!value.empty() && value[0] != ':') return;
  if (!value.empty()) value.remove_prefix(1);
  if (value.starts_with(' ')) value.remove_prefix(1);
  if (has_data_) data_ += '\n';
  data_ += value;
  has_data_ = true;
}

}  // namespace caravan::cli::bench
