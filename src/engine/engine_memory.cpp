// What the process holds on each device.

#include <ggml-backend.h>

#include "engine/engine.h"
#include "engine/model.h"

namespace caravan::engine {

std::vector<DeviceMemory> Engine::memory() const {
  std::vector<DeviceMemory> devices;
  for (std::size_t i = 0; i < ggml_backend_dev_count(); ++i) {
    ggml_backend_dev_t device = ggml_backend_dev_get(i);
    std::size_t free_bytes = 0;
    std::size_t total_bytes = 0;
    ggml_backend_dev_memory(device, &free_bytes, &total_bytes);
    devices.push_back({.device = ggml_backend_dev_name(device),
                       .description = ggml_backend_dev_description(device),
                       .total_bytes = total_bytes,
                       .free_bytes = free_bytes});
    if (ggml_backend_dev_count() == 1) devices.back().weights_bytes = model_.info().size_bytes;
  }
  return devices;
}

}  // namespace caravan::engine
