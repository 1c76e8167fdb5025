// The digest of a model's content: what names its blocks wherever they are kept (kv/block.h, Namespace::model).
//
// SHA-256 over the shards in order, each with its length in front. Reading a model of many gigabytes takes a while, so
// the digest is kept beside the first shard, as "<shard>.caravan-digest", with the device, inode, size and times of
// change of every shard. It counts only while all of those are as they were, the inode's own change time among them:
// that one moves with every write and cannot be set back. Where the folder cannot be written, it is computed each time.
#pragma once

#include <functional>
#include <string>

#include "base/result.h"
#include "engine/gguf_file.h"

namespace caravan::engine {

// 64 hexadecimal digits. `progress` is called with 0..1 while the content is read; not called when the digest was kept.
// Errors: io. Thread-safe; processes may do it at the same time.
Result<std::string> model_digest(const ModelFile& file, const std::function<void(float)>& progress = {});

}  // namespace caravan::engine
