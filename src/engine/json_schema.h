// JSON Schema to GBNF, the grammars that libllama samples by. Pure. (llama.cpp's own converter is no part of libllama.)
//
// What comes out by such a grammar satisfies the schema: a keyword that cannot be kept is an error, except where a
// stricter grammar keeps it too (properties come in the schema's order; very long texts and lists are bounded lower).
// Annotations (title, description, default, examples, unknown formats) do not matter.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace caravan::engine {

// Errors: invalid_argument with the JSON pointer of what is wrong or not offered.
Result<std::string> json_schema_to_grammar(std::string_view schema_json);

// Any JSON object.
std::string json_object_grammar();

}  // namespace caravan::engine
