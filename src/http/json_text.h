// JSON values as text, for people's eyes too: numbers are written 0.4, not 4E-1 as Boost.JSON would.
#pragma once

#include <string>
#include <string_view>

#include <boost/json/fwd.hpp>

namespace caravan::http {

// Numbers that JSON cannot say (NaN, infinity) become null. Strings must be UTF-8.
std::string to_text(const boost::json::value& value);
std::string to_text(const boost::json::object& object);

// `bytes` with everything that is not UTF-8 replaced by U+FFFD.
std::string valid_utf8(std::string_view bytes);

// Whether `bytes` are well-formed UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF.
bool is_utf8(std::string_view bytes);

}  // namespace caravan::http
