// What the process holds on each device: computed as sizing does (exact for weights and KV, a close upper bound for
// compute), since libllama's public interface does not tell.

#include <ggml-backend.h>

#include "engine/engine.h"
#include "engine/kv_pool.h"
#include "engine/model.h"
#include "engine/sizing.h"

namespace caravan::engine {

std::vector<DeviceMemory> Engine::memory() const {
  const ContextShape shape = pool_ ? pool_->shape() : ContextShape{};
  std::vector<DeviceMemory> devices;
  for (const DeviceNeed& need : memory_need(model_.facts(), shape, model_.gpu_layers(), model_.budget())) {
    DeviceMemory& each = devices.emplace_back();
    each.device = need.device;
    each.description = need.description;
    each.weights_bytes = need.weights_bytes;
    if (pool_) {
      each.kv_bytes = need.kv_bytes;
      each.compute_bytes = need.compute_bytes;
    }
    each.tier_bytes = need.tier_bytes;
    ggml_backend_dev_t device = ggml_backend_dev_by_name(need.device.c_str());
    if (device == nullptr) continue;
    std::size_t free_bytes = 0;
    std::size_t total_bytes = 0;
    ggml_backend_dev_memory(device, &free_bytes, &total_bytes);
    each.free_bytes = free_bytes;
    each.total_bytes = total_bytes;
  }
  return devices;
}

}  // namespace caravan::engine
