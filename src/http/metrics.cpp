#include "http/metrics.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <prometheus/metric_family.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include "engine/engine.h"

namespace caravan::http {
namespace {

using Families = std::vector<prometheus::MetricFamily>;
using Labels = std::vector<prometheus::ClientMetric::Label>;

class Figures {
 public:
  explicit Figures(Families& families) : families_(families) {}

  void counter(std::string_view name, const char* help, double value) {
    prometheus::ClientMetric metric;
    metric.counter.value = value;
    family(name, help, prometheus::MetricType::Counter).metric.push_back(std::move(metric));
  }
  void gauge(std::string_view name, const char* help, double value, Labels labels = {}) {
    prometheus::ClientMetric metric;
    metric.label = std::move(labels);
    metric.gauge.value = value;
    family(name, help, prometheus::MetricType::Gauge).metric.push_back(std::move(metric));
  }

 private:
  // Metrics of one family are written one after the other.
  prometheus::MetricFamily& family(std::string_view name, const char* help, prometheus::MetricType type) {
    if (families_.empty() || families_.back().name != name)
      families_.push_back({.name = std::string(name), .help = help, .type = type, .metric = {}});
    return families_.back();
  }

  Families& families_;
};

double counted(const Families& families, std::string_view name) {
  double sum = 0;
  for (const auto& family : families)
    if (family.name == name)
      for (const auto& metric : family.metric) sum += metric.counter.value;
  return sum;
}

double ratio(double part, double whole) { return whole > 0 ? part / whole : 0; }

void add_engine(Figures& figures, const engine::Engine& engine) {
  const auto status = engine.status();
  figures.gauge("caravan_cells_total", "KV cells on the device.", status->cells_total);
  figures.gauge("caravan_cells_used", "KV cells in use, each shared one counted once.", status->cells_used);
  figures.gauge("caravan_cells_live", "KV cells held by running requests.", status->cells_live);
  figures.gauge("caravan_cells_peak", "The most KV cells that were in use so far.", status->cells_peak);
  figures.gauge("caravan_context_tokens", "The longest prompt and completion together.", status->context_tokens);
  figures.gauge("caravan_parallel", "Sequences that can be decoded at once.", status->parallel);
  figures.gauge("caravan_requests_running", "Requests being computed.", status->running);
  figures.gauge("caravan_requests_waiting", "Requests in the queue.", status->waiting);
  figures.gauge("caravan_compute_threads", "Threads that compute now.", status->threads);
  figures.gauge("caravan_decode_age_seconds", "How long the decode that is running now has taken.",
                seconds(engine.decode_age()));
  // All uses of one kind in a family, so one walk a kind.
  const auto memory = engine.memory();
  const auto device = [](const engine::DeviceMemory& on, const char* use) -> Labels {
    return {{"device", on.device}, {"use", use}};
  };
  for (const auto& on : memory) {
    figures.gauge("caravan_device_bytes", "Bytes on a device by use.", static_cast<double>(on.weights_bytes),
                  device(on, "weights"));
    figures.gauge("caravan_device_bytes", "", static_cast<double>(on.kv_bytes), device(on, "kv"));
    figures.gauge("caravan_device_bytes", "", static_cast<double>(on.compute_bytes), device(on, "compute"));
  }
  for (const auto& on : memory)
    figures.gauge("caravan_device_free_bytes", "Free bytes on a device.", static_cast<double>(on.free_bytes),
                  {{"device", on.device}});
}

void add_llama_server(Figures& figures, const engine::EngineStatus& status, double prompt_seconds,
                      double generation_seconds) {
  const auto prompt_tokens = static_cast<double>(status.prompt_tokens_computed);
  const auto generated = static_cast<double>(status.tokens_generated);
  const auto steps = static_cast<double>(status.steps);
  figures.counter("llamacpp:prompt_tokens_total", "Number of prompt tokens processed.", prompt_tokens);
  figures.counter("llamacpp:prompt_tokens_cached_total", "Number of prompt tokens taken from the cache.",
                  static_cast<double>(status.prompt_tokens_cached));
  figures.counter("llamacpp:prompt_seconds_total", "Prompt process time.", prompt_seconds);
  figures.counter("llamacpp:tokens_predicted_total", "Number of generation tokens processed.", generated);
  figures.counter("llamacpp:tokens_predicted_seconds_total", "Predict process time.", generation_seconds);
  figures.counter("llamacpp:n_decode_total", "Batches decoded.", steps);
  figures.gauge("llamacpp:prompt_tokens_seconds", "Average prompt throughput in tokens/s.",
                ratio(prompt_tokens, prompt_seconds));
  figures.gauge("llamacpp:predicted_tokens_seconds", "Average generation throughput in tokens/s.",
                ratio(generated, generation_seconds));
  figures.gauge("llamacpp:kv_cache_usage_ratio", "KV cells in use; 1 means all of them.",
                ratio(status.cells_used, status.cells_total));
  figures.gauge("llamacpp:kv_cache_tokens", "KV cells in use.", status.cells_used);
  figures.gauge("llamacpp:requests_processing", "Requests being computed.", status.running);
  figures.gauge("llamacpp:requests_deferred", "Requests in the queue.", status.waiting);
}

}  // namespace

HttpResponse answer_metrics(const HttpRequest& /*request*/, ServerState& state) {
  Families families = state.registry.Collect();
  const double prompt_seconds = counted(families, "caravan_prompt_seconds_total");
  const double generation_seconds = counted(families, "caravan_generation_seconds_total");
  if (state.serving) {
    Figures figures(families);
    add_engine(figures, *state.serving->engine);
    add_llama_server(figures, *state.serving->engine->status(), prompt_seconds, generation_seconds);
  }
  return {.status = 200,
          .body = prometheus::TextSerializer().Serialize(families),
          .content_type = "text/plain; version=0.0.4; charset=utf-8",
          .headers = {}};
}

}  // namespace caravan::http
