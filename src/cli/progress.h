// One line on stderr that is written over as things go on; nothing at all when stderr is not a terminal.
// Not thread-safe.
#pragma once

#include <string_view>

namespace caravan::cli {

class ProgressLine {
 public:
  ProgressLine();
  ~ProgressLine() { clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  [[nodiscard]] bool visible() const { return terminal_; }
  void show(std::string_view text);
  void clear();

 private:
  bool terminal_ = false;
  bool shown_ = false;
};

}  // namespace caravan::cli
