// Any body at all: the parsers return a call, or an error of status 400 that can be written as JSON.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "http/json_text.h"
#include "http/openai.h"

namespace {

using namespace caravan::http;

template <class Call>
void check(const ApiResult<Call>& result) {
  if (result) return;
  CHECK(result.error().status == 400U);
  CHECK(!result.error().message.empty());
  CHECK(is_utf8(error_body(result.error())));
}

}  // namespace

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer's
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  const ParseLimits limits{.choices_max = 8, .inputs_max = 8};
  check(parse_chat(body, limits));
  check(parse_completion(body, limits));
  check(parse_embedding(body, limits));
  return 0;
}
