// The fields that chat completions and completions share; for openai_parse*.cpp alone.
#pragma once

#include <cstdint>

#include "http/json_fields.h"
#include "http/openai.h"

namespace caravan::http {

constexpr std::int64_t top_logprobs_max = 20;
constexpr std::size_t session_bytes_max = 256;

// Sampling, length, stop strings, output shape, streaming and session; what is wrong stays in `fields`.
void read_params(JsonFields& fields, const ParseLimits& limits, CompletionCall& call);

}  // namespace caravan::http
