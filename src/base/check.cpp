#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace caravan {

void check_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "caravan: CHECK failed: %s (%s:%d)\n", condition, file, line);
  std::fflush(stderr);
  std::abort();
}

}  // namespace caravan
