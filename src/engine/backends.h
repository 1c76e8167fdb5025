// ggml's backends and libllama's log. For engine/ only (callers outside use load_backends() in model.h).
#pragma once

#include <string>

namespace caravan::engine {

// While one lives, what libllama complains about on this thread is kept for an error message. Loading a model reports
// its reason only through the log. A failed assertion of libllama or ggml on this thread is then an exception inside
// libllama, where it otherwise ends the process.
class ComplaintRecorder {
 public:
  ComplaintRecorder();
  ~ComplaintRecorder();
  ComplaintRecorder(const ComplaintRecorder&) = delete;
  ComplaintRecorder& operator=(const ComplaintRecorder&) = delete;

  // The first error line since construction, without libllama's function name; empty if there was none.
  [[nodiscard]] std::string first() const;
};

}  // namespace caravan::engine
