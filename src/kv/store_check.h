// LMDB believes its file: a bad offset in a page makes it read wherever that points. So before a file is opened by the
// first of its users, its trees are walked by code that believes nothing. Frames are not read: each has a checksum,
// and is verified when it is asked for.
#pragma once

#include <expected>
#include <filesystem>
#include <string>

namespace caravan::kv {

// Whether LMDB may open `data`, which nobody changes meanwhile: that the file is as long as it says, that pages and
// entries lie where they may, and that no page is used twice. Else what is wrong.
std::expected<void, std::string> check_file(const std::filesystem::path& data);

}  // namespace caravan::kv
