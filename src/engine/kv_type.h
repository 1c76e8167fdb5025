// The types that K and V cells can have, by ggml's names.
#pragma once

#include <string>

#include <ggml.h>

#include "base/result.h"

namespace caravan::engine {

// Errors: invalid_argument; the line begins with `flag` and lists the names.
Result<ggml_type> parse_kv_type(const std::string& name, const char* flag);

}  // namespace caravan::engine
