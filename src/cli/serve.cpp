#include "cli/serve.h"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <thread>

#include <prometheus/registry.h>

#include "base/log.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "engine/chat_template.h"
#include "engine/engine.h"
#include "engine/model.h"
#include "http/server.h"

namespace caravan::cli {
namespace {

// The network thread: it listens before the model is loaded, and ends when the server has drained or was stopped.
class NetworkThread {
 public:
  explicit NetworkThread(http::Server& server) : server_(server), thread_([this] { run(); }) {}
  ~NetworkThread() {
    loading_over();
    server_.stop();
    wait();
  }
  NetworkThread(const NetworkThread&) = delete;
  NetworkThread& operator=(const NetworkThread&) = delete;

  void loading_over() { loading_ = false; }
  void wait() {
    if (thread_.joinable()) thread_.join();
  }

 private:
  void run() {
    server_.run();
    // From here on a signal ends the process as it does by default: nothing may hold it up.
    std::signal(SIGINT, SIG_DFL);
    std::signal(SIGTERM, SIG_DFL);
    // A signal came while the model was loading: that cannot be broken off, and there is nothing to lose yet.
    if (loading_) std::_Exit(exit_fine);
  }

  http::Server& server_;
  std::atomic<bool> loading_ = true;
  std::thread thread_;
};

Result<std::unique_ptr<engine::Model>> load_model(engine::ModelOptions options, http::Server& server) {
  ProgressLine line;
  options.progress = [&](float part) {
    server.set_loading(part);
    line.show(fmt::format("loading {} {:3.0f} %", options.path.filename().string(), part * 100));
  };
  return engine::Model::load(options);
}

// The text of a template, where the option names a file.
Result<std::string> chat_template_text(const std::string& chosen) {
  if (!chosen.starts_with('@')) return chosen;
  std::ifstream file(chosen.substr(1), std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file || text.empty()) {
    return fail(ErrorCode::io, "--chat-template {}: the file cannot be read or is empty", chosen);
  }
  return text;
}

// Models that only give embeddings have none.
Result<std::unique_ptr<engine::ChatTemplate>> make_chat_template(const engine::Model& model,
                                                                 const std::string& chosen) {
  if (!model.info().decoder) return nullptr;
  const auto text = chat_template_text(chosen);
  if (!text) return std::unexpected(text.error());
  return engine::ChatTemplate::create(model, *text);
}

// On a line of its own, whatever a file calls its model.
std::string one_line(std::string name) {
  std::ranges::replace_if(name, [](unsigned char c) { return c < 0x20; }, ' ');
  return name;
}

void warn_of_open_door(const http::ServerOptions& server) {
  const bool is_local = server.host == "127.0.0.1" || server.host == "localhost" || server.host == "::1";
  if (!is_local && server.api_keys.empty()) {
    log::warn("whoever reaches {} can use this model; --api-key or --api-key-file asks for a key", server.host);
  }
}

int serve(ServeOptions options) {
  prometheus::Registry registry;
  options.server.handle_signals = true;
  warn_of_open_door(options.server);
  const auto server = http::Server::create(options.server, registry);
  if (!server)
    return server.error().code == ErrorCode::invalid_argument ? usage_error(server.error()) : failure(server.error());
  NetworkThread network(**server);

  const auto model = load_model(options.model, **server);
  if (!model) return failure(model.error());
  const auto chat_template = make_chat_template(**model, options.chat_template);
  if (!chat_template) return failure(chat_template.error());
  const auto engine = engine::Engine::create(**model, options.engine, registry);
  if (!engine) return failure(engine.error());
  (*engine)->start();
  (*server)->set_model(**model, chat_template->get(), **engine);
  network.loading_over();
  fmt::print("caravan: serving {} on {}\n", one_line((*model)->info().name), (*server)->url());
  std::fflush(stdout);

  network.wait();
  (*engine)->stop();
  return exit_fine;
}

}  // namespace

Result<std::filesystem::path> find_demo_model(const Invocation& invocation) {
  namespace fs = std::filesystem;
  const auto exists = [](const fs::path& path) {
    std::error_code problem;
    return fs::is_regular_file(path, problem);
  };
  if (const auto set = invocation.environment.find("CARAVAN_DEMO_MODEL"); set != invocation.environment.end()) {
    return fs::path(set->second);
  }
  const fs::path source_tree = CARAVAN_DEMO_MODEL_PATH;
  const fs::path here = fs::path(invocation.program).parent_path();
  for (const fs::path& path : {here / source_tree.filename(), here / "models" / "demo" / source_tree.filename(),
                               here.parent_path() / "share" / "caravan" / source_tree.filename(), source_tree}) {
    if (exists(path)) return path;
  }
  return fail(ErrorCode::not_found, "the demo model {} is not beside {}; give a model with -m",
              source_tree.filename().string(), invocation.program);
}

int run_serve(const Invocation& invocation) {
  ServeOptions options;
  if (const auto code = read_options(serve_table(options), invocation)) return *code;
  if (const Status status = complete(options); !status) return usage_error(status.error());
  set_up_log(options.talk, invocation.environment);
  if (options.model.path.empty()) {
    const auto demo = find_demo_model(invocation);
    if (!demo) return failure(demo.error());
    options.model.path = *demo;
    log::info("no -m: serving the demo model {}", demo->filename().string());
  }
  return serve(std::move(options));
}

std::string serve_help(HelpStyle style) {
  ServeOptions options;
  return serve_table(options).help(style);
}

}  // namespace caravan::cli
