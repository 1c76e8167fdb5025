#include "cli/options.h"

#include <limits>

#include "base/log.h"

namespace caravan::cli {
namespace {

constexpr std::int64_t cells_max = std::int64_t{1} << 30;

std::vector<std::pair<std::string, std::string>> cache_types() {
  std::vector<std::pair<std::string, std::string>> types;
  for (const char* type : {"f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1"})
    types.emplace_back(type, type);
  return types;
}

Binding cache_type(std::string& type) {
  Binding binding = choice(type, cache_types());
  binding.value_name = "TYPE";
  return binding;
}

const char* const cache_type_names = "One of f32, f16, bf16, q8_0, q4_0, q4_1, iq4_nl, q5_0, q5_1.";

bool is_quantised(const std::string& type) { return type != "f32" && type != "f16" && type != "bf16"; }

}  // namespace

void add_model_options(OptionTable& table, engine::ModelOptions& model) {
  table.group("Model");
  Binding path{.set = [&model](std::string_view given) -> Status {
                 if (given.empty()) {
                   return fail(ErrorCode::invalid_argument, "give a GGUF file or a folder that holds one");
                 }
                 model.path = given;
                 return {};
               },
               .value_name = "PATH",
               .default_text = "demo model"};
  table.add({.name = "model",
             .aliases = {"-m"},
             .binding = std::move(path),
             .help = "GGUF file, its first shard, or a folder that holds one",
             .details = "Without it the small demo model serves."});
  table.add({.name = "alias",
             .aliases = {"-a"},
             .binding = text(model.alias, "NAME"),
             .help = "the model's name in the API",
             .details = "Default: the name in the file."});
  Binding layers = integer(model.gpu_layers, 0, 100'000);
  layers.set = [&model, number = layers.set](std::string_view given) -> Status {
    if (given == "all" || given == "-1") {
      model.gpu_layers = -1;
      return {};
    }
    auto status = number(given);
    if (!status) status.error().message += ", or all";
    return status;
  };
  layers.value_name = "N|all";
  layers.default_text = "all";
  table.add({.name = "gpu-layers",
             .aliases = {"-ngl", "--n-gpu-layers"},
             .binding = std::move(layers),
             .help = "layers kept on the GPU",
             .details = "Without a GPU everything stays in RAM."});
}

void add_chat_template_option(OptionTable& table, std::string& chat_template) {
  table.add({.name = "chat-template",
             .binding = text(chat_template, "NAME|TEXT|@FILE"),
             .help = "chat template instead of the model's",
             .details = "The name of a known one (chatml, llama3, ...), the Jinja text itself, or @ and a file."});
}

void add_cache_options(OptionTable& table, engine::EngineOptions& engine) {
  table.group("KV cache");
  table.add({.name = "kv-cache",
             .binding = switched(engine.kv_cache),
             .help = "compute a prefix once, keep it once, share it",
             .details = "Off: every prompt is computed alone and nothing is kept."});
  table.add({.name = "kvsize",
             .aliases = {"-c", "--ctx-size"},
             .binding = integer(engine.kv_cells, 1, cells_max, "auto"),
             .help = "KV cells (tokens) for all sequences together",
             .details = "auto fits them to the model and the memory that is free."});
  table.add({.name = "parallel",
             .aliases = {"-np"},
             .binding = integer(engine.parallel, 1, 256, "auto"),
             .help = "sequences decoded at once"});
  table.add({.name = "kv-layout",
             .binding = choice(engine.layout, {{"auto", engine::KvLayout::automatic},
                                               {"unified", engine::KvLayout::unified},
                                               {"streams", engine::KvLayout::streams}}),
             .help = "one pool that shares prefixes, or a stream for each",
             .details = "unified: all sequences in one pool, prefixes shared between them. streams: each sequence in "
                        "cells of its own, for prompts that have nothing in common."});
  table.add({.name = "cache-type-k",
             .aliases = {"-ctk"},
             .binding = cache_type(engine.type_k),
             .help = "type of the K cells",
             .details = cache_type_names});
  table.add({.name = "cache-type-v",
             .aliases = {"-ctv"},
             .binding = cache_type(engine.type_v),
             .help = "type of the V cells",
             .details = std::string(cache_type_names) + " A quantised one needs flash attention."});
  table.add({.name = "block-tokens",
             .binding = integer(engine.block_tokens, 8, 4096),
             .help = "tokens in a block; prefill chunks end on its multiples"});
  table.add({.name = "context-shift",
             .binding = switched(engine.context_shift),
             .help = "at the context's end drop the oldest tokens and go on",
             .details = "Off: generation ends there with finish_reason length. Refused for models that cannot shift."});
  table.add({.name = "keep",
             .binding = integer(engine.keep, 0, cells_max),
             .help = "tokens at the front that a context shift keeps"});
}

void add_sharing_option(OptionTable& table, SharingOptions& sharing) {
  Binding share = text(sharing.share, "process");
  share.set = [&sharing](std::string_view given) -> Status {
    if (given == "mmap" || given == "rpc") {
      return fail(ErrorCode::unsupported, "this version shares within one process; give --share process");
    }
    if (given != "process") return fail(ErrorCode::invalid_argument, "give process");
    sharing.share = given;
    return {};
  };
  table.add({.name = "share",
             .binding = std::move(share),
             .help = "how far sharing reaches",
             .details = "process: among all requests of this process."});
  Binding distributed = switched(sharing.distributed);
  distributed.set = [](std::string_view given) -> Status {
    if (const auto on = parse_switch(given); on && !*on) return {};
    return fail(ErrorCode::unsupported, "this version serves from one process; leave it out");
  };
  table.add({.name = "distributed", .binding = std::move(distributed), .hidden = true});
}

void add_compute_options(OptionTable& table, engine::EngineOptions& engine) {
  table.group("Compute");
  table.add({.name = "threads",
             .aliases = {"-t"},
             .binding = integer(engine.threads, 1, 1024, "auto"),
             .help = "threads that decode",
             .details = "auto: all cores while they are free, fewer as soon as something else needs them."});
  table.add({.name = "threads-batch",
             .aliases = {"-tb"},
             .binding = integer(engine.threads_batch, 1, 1024, "auto"),
             .help = "threads that prefill",
             .details = "auto: as --threads."});
  table.add({.name = "batch-size",
             .aliases = {"-b"},
             .binding = integer(engine.batch_tokens, 1, 1 << 20),
             .help = "tokens in one step at the most"});
  table.add({.name = "ubatch-size",
             .aliases = {"-ub"},
             .binding = integer(engine.ubatch_tokens, 1, 1 << 20),
             .help = "tokens computed at once"});
  table.add({.name = "flash-attn",
             .aliases = {"-fa"},
             .binding = choice(engine.flash_attention, {{"auto", engine::FlashAttention::automatic},
                                                        {"on", engine::FlashAttention::on},
                                                        {"off", engine::FlashAttention::off}}),
             .help = "flash attention"});
  table.add({.name = "hang-timeout",
             .binding = duration(engine.hang_timeout),
             .help = "one step longer than this turns /health to 503"});
}

void add_server_options(OptionTable& table, http::ServerOptions& server, KeyOptions& keys,
                        engine::EngineOptions& engine) {
  table.group("Server");
  table.add({.name = "host", .binding = text(server.host, "ADDRESS"), .help = "address to listen on"});
  table.add({.name = "port",
             .binding = integer(server.port, 0, 65535),
             .help = "port to listen on",
             .details = "0: any free one; the line on stdout that says where the model serves names it."});
  Binding api_key = texts(keys.api_keys, "KEY");
  api_key.secret = true;
  table.add({.name = "api-key",
             .binding = std::move(api_key),
             .help = "key that clients must send; may be repeated",
             .details = "Several with commas between, or the flag several times."});
  table.add({.name = "api-key-file",
             .binding = text(keys.api_key_file, "FILE"),
             .help = "keys, name:key a line; the name is the tenant"});
  table.add({.name = "tenant-isolation",
             .binding = switched(engine.tenant_isolation),
             .help = "share prefixes only within a tenant",
             .details = "Needs --api-key-file, whose names tell the tenants apart."});
  Binding admin_key = text(server.admin_key, "KEY");
  admin_key.secret = true;
  table.add({.name = "admin-key",
             .binding = std::move(admin_key),
             .help = "key for admin calls",
             .details = "Without it they answer to this machine alone."});
  table.add({.name = "queue-max",
             .binding = integer(engine.queue_max, 1, 1'000'000),
             .help = "requests that may wait; more get 429"});
  table.add({.name = "connections-max",
             .binding = integer(server.connections_max, 1, 1'000'000),
             .help = "open connections; more get 503"});
  table.add({.name = "body-bytes-max",
             .binding = bytes(server.body_bytes_max, 1024, std::uint64_t{16} << 30),
             .help = "size of one request; more gets 413"});
  table.add({.name = "cors-origin",
             .binding = text(server.cors_origin, "ORIGIN"),
             .help = "origin that browsers may call from, or *"});
  table.add({.name = "drain-timeout",
             .binding = duration(server.drain_timeout),
             .help = "time that running requests have after SIGTERM"});
  table.add({.name = "node-id",
             .binding = text(server.node_id, "NAME"),
             .help = "name of this server in X-Caravan-Node",
             .details = "Default: its address and port."});
}

void add_talk_options(OptionTable& table, TalkOptions& talk) {
  table.group("Talk");
  table.add({.name = "kv-debug",
             .binding = switched(talk.kv_debug),
             .help = "a log line for each match, share and eviction",
             .details = "LLAMA_KV_CACHE_DEBUG=1 in the environment does the same."});
}

void set_up_log(const TalkOptions& talk, const Environment& environment) {
  const auto value_of = [&](std::string_view name) {
    const auto found = environment.find(name);
    return found == environment.end() ? std::string() : found->second;
  };
  const auto wanted = parse_switch(value_of("LLAMA_KV_CACHE_DEBUG"));
  if (talk.kv_debug || (wanted && *wanted)) log::set_level(log::Level::debug);
  if (!value_of("NO_COLOR").empty()) log::set_plain();
}

OptionTable serve_table(ServeOptions& options) {
  OptionTable table(
      {.name = "serve",
       .summary = "Serve a GGUF model to many users at once over the OpenAI API.",
       .examples = {{"caravan serve -m model.gguf", "on http://127.0.0.1:8080, sized to this machine"},
                    {"caravan serve -m model.gguf -c 32768 -np 8 -ctk q8_0 -ctv q8_0 --api-key-file keys.txt",
                     "eight sequences at once in 32768 cells of half the bytes, for clients that have a key"},
                    {"caravan serve", "the demo model, to try it out"},
                    {"CARAVAN_PORT=9000 caravan serve --config caravan.toml", "the same names in a file"}},
       .notes =
           "Ready when a line such as 'caravan: serving NAME on http://127.0.0.1:8080' stands on stdout. SIGTERM and "
           "SIGINT let running requests finish; a second one stops at once."});
  add_model_options(table, options.model);
  add_chat_template_option(table, options.chat_template);
  add_cache_options(table, options.engine);
  add_sharing_option(table, options.sharing);
  add_compute_options(table, options.engine);
  add_server_options(table, options.server, options.keys, options.engine);
  add_talk_options(table, options.talk);
  return table.allow_config_file();
}

Status validate(const engine::EngineOptions& engine) {
  if (engine.ubatch_tokens > engine.batch_tokens) {
    return fail(ErrorCode::invalid_argument, "--ubatch-size {} is more than --batch-size {}; give at most that",
                engine.ubatch_tokens, engine.batch_tokens);
  }
  if (engine.keep > 0 && !engine.context_shift) {
    return fail(ErrorCode::invalid_argument, "--keep {} does nothing without --context-shift; give both or neither",
                engine.keep);
  }
  if (engine.flash_attention == engine::FlashAttention::off && is_quantised(engine.type_v)) {
    return fail(ErrorCode::invalid_argument, "--cache-type-v {} needs flash attention; leave out --flash-attn off",
                engine.type_v);
  }
  if (engine.hang_timeout < std::chrono::seconds(1)) {
    return fail(ErrorCode::invalid_argument, "--hang-timeout {}: give 1s or more",
                format_duration(engine.hang_timeout));
  }
  return {};
}

Status complete(ServeOptions& options) {
  if (const Status status = validate(options.engine); !status) return status;
  auto& keys = options.server.api_keys;
  for (const auto& secret : options.keys.api_keys) {
    keys.push_back({keys.empty() ? "default" : fmt::format("default-{}", keys.size() + 1), secret});
  }
  if (!options.keys.api_key_file.empty()) {
    auto read = http::read_api_keys(options.keys.api_key_file);
    if (!read) return std::unexpected(read.error());
    keys.insert(keys.end(), read->begin(), read->end());
  }
  if (options.engine.tenant_isolation && keys.empty()) {
    return fail(ErrorCode::invalid_argument,
                "--tenant-isolation without keys isolates nobody; give --api-key-file too");
  }
  return http::validate(options.server);
}

}  // namespace caravan::cli
