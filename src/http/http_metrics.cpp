#include "http/http_metrics.h"

#include <string>

#include <prometheus/registry.h>

namespace caravan::http {
namespace {

prometheus::Counter& counter(prometheus::Registry& registry, const char* name, const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry).Add({});
}

prometheus::Gauge& gauge(prometheus::Registry& registry, const char* name, const char* help) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(registry).Add({});
}

}  // namespace

HttpMetrics::HttpMetrics(prometheus::Registry& registry)
    : requests_(prometheus::BuildCounter()
                    .Name("caravan_http_requests_total")
                    .Help("Answered HTTP requests by route and status.")
                    .Register(registry)),
      received_(counter(registry, "caravan_http_received_bytes_total", "Bytes of HTTP request bodies.")),
      sent_(counter(registry, "caravan_http_sent_bytes_total", "Bytes of HTTP responses.")),
      connections_(gauge(registry, "caravan_http_connections", "Open HTTP connections.")),
      streams_(gauge(registry, "caravan_http_streams", "Responses being streamed.")),
      clients_gone_(counter(registry, "caravan_http_clients_gone_total",
                            "Requests given up because the client closed its connection or stopped reading.")) {}

void HttpMetrics::answered(std::string_view route, unsigned status) {
  requests_.Add({{"path", std::string(route)}, {"status", std::to_string(status)}}).Increment();
}

}  // namespace caravan::http
