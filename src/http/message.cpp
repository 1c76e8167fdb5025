#include "http/message.h"

#include <algorithm>

namespace caravan::http {

bool same_token(std::string_view left, std::string_view right) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
  return std::ranges::equal(left, right, {}, lower, lower);
}

std::string_view HttpRequest::header(std::string_view name) const {
  const auto found = std::ranges::find_if(headers, [name](const auto& entry) { return same_token(entry.first, name); });
  return found == headers.end() ? std::string_view{} : std::string_view{found->second};
}

}  // namespace caravan::http
