#include "engine/request.h"

namespace caravan::engine {

const char* name_of(MissReason reason) {
  switch (reason) {
    case MissReason::none:
      return "none";
    case MissReason::fresh:
      return "new";
    case MissReason::cold:
      return "cold";
    case MissReason::diverged:
      return "diverged";
    case MissReason::disabled:
      return "disabled";
    case MissReason::unsupported:
      return "unsupported";
  }
  return "unknown";
}

}  // namespace caravan::engine
