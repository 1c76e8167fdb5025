// What `caravan serve` can be told: one typed struct a component, and the groups of the option table that fill them.
// Other commands that need a model or an engine (plan) put the same groups into their own table.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/option_table.h"
#include "engine/engine.h"
#include "engine/model.h"
#include "http/server_options.h"

namespace caravan::cli {

// The program's own part.
struct TalkOptions {
  bool kv_debug = false;  // log level debug
};

// Options whose fields are filled by something else than their text (files to read, values to refuse).
struct KeyOptions {
  std::vector<std::string> api_keys;
  std::string api_key_file;
};

struct SharingOptions {
  std::string share = "process";
  bool distributed = false;
};

struct ServeOptions {
  engine::ModelOptions model;
  std::string chat_template;  // name, text or @file; empty: the model's own
  engine::EngineOptions engine;
  SharingOptions sharing;
  http::ServerOptions server;
  KeyOptions keys;
  TalkOptions talk;
};

// Each adds a titled group bound to its struct.
void add_model_options(OptionTable& table, engine::ModelOptions& model);
void add_chat_template_option(OptionTable& table, std::string& chat_template);  // into the current group
void add_cache_options(OptionTable& table, engine::EngineOptions& engine);
void add_sharing_option(OptionTable& table, SharingOptions& sharing);  // into the current group
void add_compute_options(OptionTable& table, engine::EngineOptions& engine);
void add_server_options(OptionTable& table, http::ServerOptions& server, KeyOptions& keys,
                        engine::EngineOptions& engine);
void add_talk_options(OptionTable& table, TalkOptions& talk);

// Log level, from the flag or LLAMA_KV_CACHE_DEBUG=1; colour, unless NO_COLOR is set.
void set_up_log(const TalkOptions& talk, const Environment& environment);

OptionTable serve_table(ServeOptions& options);

// What no single option can check, and what must be read first (API keys). Errors: one line.
Status complete(ServeOptions& options);
// The part of `complete` that concerns the engine alone.
Status validate(const engine::EngineOptions& engine);

}  // namespace caravan::cli
