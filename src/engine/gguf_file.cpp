#include "engine/gguf_file.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

#include "engine/gguf_facts.h"
#include "engine/gguf_metadata.h"

namespace caravan::engine {
namespace {

namespace fs = std::filesystem;

constexpr std::uint32_t shards_max = 9999;

// "model-00001-of-00003.gguf"
struct ShardName {
  std::string stem;  // "model"
  std::uint32_t number = 0;
  std::uint32_t count = 0;
};

std::optional<ShardName> parse_shard(const fs::path& path) {
  const std::string name = path.stem().string();
  constexpr std::string_view pattern = "-00001-of-00001";
  if (path.extension() != ".gguf" || name.size() <= pattern.size()) return std::nullopt;
  const std::string_view tail = std::string_view(name).substr(name.size() - pattern.size());
  ShardName shard{.stem = name.substr(0, name.size() - pattern.size())};
  const auto digits = [&](std::size_t at, std::uint32_t& out) {
    const auto [end, problem] = std::from_chars(tail.data() + at, tail.data() + at + 5, out);
    return problem == std::errc() && end == tail.data() + at + 5;
  };
  if (tail[0] != '-' || tail.substr(6, 4) != "-of-" || !digits(1, shard.number) || !digits(10, shard.count)) {
    return std::nullopt;
  }
  return shard;
}

fs::path shard_path(const fs::path& folder, const ShardName& shard, std::uint32_t number) {
  return folder / fmt::format("{}-{:05}-of-{:05}.gguf", shard.stem, number, shard.count);
}

bool is_file(const fs::path& path) {
  std::error_code problem;
  return fs::is_regular_file(path, problem);
}

Result<fs::path> model_in_folder(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code problem;
  for (fs::directory_iterator at(folder, problem), end; !problem && at != end; at.increment(problem)) {
    if (at->path().extension() != ".gguf" || !is_file(at->path())) continue;
    if (at->path().filename().string().starts_with("mmproj")) continue;  // what images are seen with, no model
    const auto shard = parse_shard(at->path());
    if (shard && shard->number != 1 && is_file(shard_path(folder, *shard, 1))) continue;
    found.push_back(at->path());
  }
  if (problem) return fail(ErrorCode::io, "{}: the folder cannot be read: {}", folder.string(), problem.message());
  std::ranges::sort(found);
  if (found.empty()) {
    return fail(ErrorCode::not_found, "{}: the folder holds no .gguf file; give a model file", folder.string());
  }
  if (found.size() > 1) {
    std::string names;
    for (std::size_t i = 0; i < std::min<std::size_t>(found.size(), 5); ++i) {
      names += (i == 0 ? "" : ", ") + found[i].filename().string();
    }
    return fail(ErrorCode::invalid_argument, "{}: the folder holds {} models ({}{}); name one of them", folder.string(),
                found.size(), names, found.size() > 5 ? ", ..." : "");
  }
  return found.front();
}

std::unexpected<Error> about(const fs::path& path, const Error& error) {
  return fail(error.code, "{}: {}", path.string(), error.message);
}

// split.no and split.count must be u16 (libllama aborts on other types) and agree with the name.
Status check_shard(const GgufMetadata& file, const ModelFile& model, std::size_t index) {
  const auto count = file.number("split.count");
  const auto number = file.number("split.no");
  if (model.shards.size() == 1) {
    if (count.value_or(1) > 1) {
      return fail(ErrorCode::invalid_argument,
                  "one of {} shards; keep the names as they were (...-00001-of-{:05}.gguf) and give the first", *count,
                  *count);
    }
    return {};
  }
  if (number != index || count != model.shards.size() || !file.is_u16("split.no")) {
    return fail(ErrorCode::invalid_argument,
                "its name says shard {} of {}, its metadata shard {} of {}; give all shards the names they had",
                index + 1, model.shards.size(), number ? std::to_string(*number + 1) : "none", count.value_or(0));
  }
  return {};
}

}  // namespace

Result<ModelFile> resolve_model(const fs::path& given) {
  std::error_code problem;
  fs::path path = given;
  if (fs::is_directory(path, problem)) {
    auto found = model_in_folder(path);
    if (!found) return std::unexpected(found.error());
    path = *found;
  }
  if (!fs::exists(path, problem)) {
    return fail(ErrorCode::not_found, "{}: no such model file; give a GGUF file or a folder that holds one",
                given.string());
  }
  if (!is_file(path)) {
    return fail(ErrorCode::invalid_argument, "{}: not a regular file; give a GGUF file or a folder that holds one",
                given.string());
  }
  ModelFile model;
  const auto shard = parse_shard(path);
  if (shard && shard->count > 1) {
    const fs::path folder = path.parent_path();
    if (shard->number != 1) {
      return fail(ErrorCode::invalid_argument, "{}: shard {} of {}; give the first, {}", path.string(), shard->number,
                  shard->count, shard_path(folder, *shard, 1).filename().string());
    }
    if (shard->count > shards_max) {
      return fail(ErrorCode::invalid_argument, "{}: {} shards; at most {} can be", path.string(), shard->count,
                  shards_max);
    }
    for (std::uint32_t number = 1; number <= shard->count; ++number) {
      model.shards.push_back(shard_path(folder, *shard, number));
      if (!is_file(model.shards.back())) {
        return fail(ErrorCode::not_found, "{}: this shard of {} is missing; fetch it into the same folder",
                    model.shards.back().string(), shard->count);
      }
    }
  } else {
    model.shards.push_back(path);
  }
  for (const fs::path& each : model.shards) {
    const auto size = fs::file_size(each, problem);
    if (problem) return fail(ErrorCode::io, "{}: cannot be read: {}", each.string(), problem.message());
    model.bytes += size;
  }
  return model;
}

Result<ModelFacts> check_model_file(const ModelFile& model) {
  std::vector<GgufMetadata> files;
  std::vector<GgufMetadata::Tensor> tensors;
  for (std::size_t i = 0; i < model.shards.size(); ++i) {
    const fs::path& path = model.shards[i];
    auto file = GgufMetadata::read(path);
    if (!file) return std::unexpected(file.error());
    if (const Status status = check_shard(*file, model, i); !status) return about(path, status.error());
    std::error_code problem;
    const std::uint64_t size = fs::file_size(path, problem);
    if (file->end() > size) {
      return fail(ErrorCode::invalid_argument, "{}: truncated: {} bytes of {} are there; fetch it again", path.string(),
                  size, file->end());
    }
    for (auto& tensor : file->tensors()) tensors.push_back(tensor);
    files.push_back(std::move(*file));
  }
  auto facts = read_facts(files.front(), tensors);
  if (!facts) return about(model.path(), facts.error());
  return facts;
}

}  // namespace caravan::engine
