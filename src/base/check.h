// CHECK(condition): a programmer's error ends the process with file, line and condition, in release builds too.
#pragma once

namespace caravan {
[[noreturn]] void check_failed(const char* condition, const char* file, int line);
}  // namespace caravan

#define CHECK(condition)                                       \
  do {                                                         \
    if (!(condition)) [[unlikely]]                             \
      ::caravan::check_failed(#condition, __FILE__, __LINE__); \
  } while (false)
