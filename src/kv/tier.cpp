#include "kv/tier.h"

namespace caravan::kv {

const char* name_of(TierKind kind) {
  switch (kind) {
    case TierKind::device:
      return "device";
    case TierKind::host:
      return "host";
    case TierKind::store:
      return "store";
    case TierKind::peer:
      return "peer";
    case TierKind::remote:
      return "remote";
  }
  return "unknown";
}

}  // namespace caravan::kv
