// Who may call what: API keys, the admin key, and what "loopback alone" means. Pure; immutable, so thread-safe.
#pragma once

#include <optional>
#include <string>

#include "http/api_error.h"
#include "http/message.h"
#include "http/server_options.h"

namespace caravan::http {

enum class Access {
  open,   // anyone
  key,    // an API key, when there are any
  admin,  // the admin key when one is set, else peers on this host alone
};

// The tenant of the caller (empty: none), or 401 / 403. `options` names the keys.
ApiResult<std::string> admit(const HttpRequest& request, Access access, const ServerOptions& options);

}  // namespace caravan::http
