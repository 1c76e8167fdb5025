// Two JSON schemas that must hold at once, as one. Pure.
#pragma once

#include <string_view>

#include <boost/json/fwd.hpp>

#include "base/result.h"

namespace caravan::engine {

// A schema's keywords that say nothing about the value.
bool schema_annotation(std::string_view keyword);

// A $ref is kept beside what it stands with. Errors: invalid_argument with the keyword that cannot be given twice.
Result<boost::json::value> merge_schemas(const boost::json::value& a, const boost::json::value& b);

}  // namespace caravan::engine
