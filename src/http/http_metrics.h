// The HTTP layer's own metrics. Thread-safe.
#pragma once

#include <cstddef>
#include <string_view>

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>

namespace prometheus {
class Registry;
}

namespace caravan::http {

class HttpMetrics {
 public:
  explicit HttpMetrics(prometheus::Registry& registry);

  // `route` is the pattern of the route table, never what the client wrote.
  void answered(std::string_view route, unsigned status);
  void received(std::size_t bytes) { received_.Increment(static_cast<double>(bytes)); }
  void sent(std::size_t bytes) { sent_.Increment(static_cast<double>(bytes)); }

  prometheus::Gauge& connections() { return connections_; }
  prometheus::Gauge& streams() { return streams_; }
  prometheus::Counter& clients_gone() { return clients_gone_; }

 private:
  prometheus::Family<prometheus::Counter>& requests_;
  prometheus::Counter& received_;
  prometheus::Counter& sent_;
  prometheus::Gauge& connections_;
  prometheus::Gauge& streams_;
  prometheus::Counter& clients_gone_;
};

}  // namespace caravan::http
