#include "engine/backends.h"

#include <filesystem>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>

#include <dlfcn.h>
#include <ggml-backend.h>
#include <ggml.h>
#include <llama.h>

#include "base/log.h"
#include "engine/model.h"

namespace caravan::engine {
namespace {

thread_local bool recording = false;
thread_local std::string complaint;

// "llama_model_load: error loading model: ..." -> "..."
std::string_view without_function_names(std::string_view line) {
  while (true) {
    const auto colon = line.find(": ");
    if (colon == std::string_view::npos || line.substr(0, colon).find(' ') != std::string_view::npos) return line;
    line.remove_prefix(colon + 2);
  }
}

void on_log(ggml_log_level level, const char* text, void*) {
  // Lines may arrive in pieces (GGML_LOG_LEVEL_CONT); only whole lines of errors are of use here.
  std::string_view line = text;
  while (line.ends_with('\n')) line.remove_suffix(1);
  if (line.empty()) return;
  if (level == GGML_LOG_LEVEL_ERROR && recording) {
    if (complaint.empty()) complaint = without_function_names(line);
    log::debug("libllama: {}", line);  // the caller turns it into its own error
  } else if (level == GGML_LOG_LEVEL_ERROR) {
    log::error("libllama: {}", line);
  } else if (level == GGML_LOG_LEVEL_WARN) {
    log::debug("libllama: {}", line);
  }
}

// ggml ends the process where an assertion does not hold, and libllama asserts much about a file's values. While
// somebody listens for complaints (a model is loaded, a context made), the assertion becomes an exception, which
// libllama catches at its surface and reports like any other; what it had allocated until then may be lost. Otherwise
// the process ends.
void on_abort(const char* message) {
  std::string_view line = message;
  while (line.ends_with('\n')) line.remove_suffix(1);
  if (const auto folder = line.substr(0, line.find(':')).rfind('/'); folder != std::string_view::npos) {
    line.remove_prefix(folder + 1);
  }
  if (recording) throw std::runtime_error(std::string(line));
  log::error("libllama: {}", line);
}

}  // namespace

void load_backends() {
  static std::once_flag once;
  std::call_once(once, [] {
    llama_log_set(on_log, nullptr);
    ggml_set_abort_callback(on_abort);
    ggml_backend_load_all();
    // Prebuilt packages keep the CPU variants and GPU backends beside libllama itself.
    Dl_info info{};
    if (ggml_backend_reg_count() == 0 && dladdr(reinterpret_cast<const void*>(&llama_backend_init), &info) != 0) {
      ggml_backend_load_all_from_path(std::filesystem::path(info.dli_fname).parent_path().c_str());
    }
    llama_backend_init();
  });
}

ComplaintRecorder::ComplaintRecorder() {
  recording = true;
  complaint.clear();
}
ComplaintRecorder::~ComplaintRecorder() { recording = false; }
std::string ComplaintRecorder::first() const { return complaint; }

}  // namespace caravan::engine
