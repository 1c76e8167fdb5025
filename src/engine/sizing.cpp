#include "engine/sizing.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "engine/bytes_text.h"

namespace caravan::engine {
namespace {

constexpr std::uint64_t mebi = std::uint64_t{1} << 20;

// libllama rounds contexts and window caches to this.
constexpr std::uint32_t cells_step = 256;
constexpr std::uint32_t cells_least = 512;

constexpr std::uint32_t parallel_default = 16;
constexpr std::uint32_t streams_default = 4;
// Beyond the most, a larger host tier is somebody's decision; below the least it is not worth its trouble.
constexpr std::uint64_t host_tier_bytes_most = 8192 * mebi;
constexpr std::uint64_t host_tier_bytes_least = 16 * mebi;
// Users rarely fill a long context all at once: the pool has a full context for one, or this much for each.
constexpr std::uint32_t context_typical = 4096;

// Left free, whatever else is taken: libraries, requests, tokenizer, metrics, the kernel's own.
constexpr std::uint64_t reserve_least = 96 * mebi;
constexpr std::uint64_t reserve_share = 16;                  // and one part in this of what is free
constexpr std::uint64_t address_space_reserve = 384 * mebi;  // threads' stacks and heaps reserve addresses

std::uint64_t pad(std::uint64_t value, std::uint64_t step) { return (value + step - 1) / step * step; }

std::uint32_t cells_of_sequence(const ContextShape& shape) {
  const std::uint64_t cells = pad(shape.cells, cells_step);
  return static_cast<std::uint32_t>(shape.unified ? cells : pad(cells / shape.sequences, cells_step));
}

bool any_windowed(const ModelFacts& facts) { return std::ranges::any_of(facts.layers, &LayerMemory::windowed); }

std::uint64_t windowed_cells(const ModelFacts& facts, const ContextShape& shape) {
  const std::uint64_t full = cells_of_sequence(shape);
  if (shape.swa_full) return full;
  const std::uint64_t ubatch = std::min({shape.ubatch_tokens, shape.batch_tokens, shape.cells});
  const std::uint64_t windows = std::uint64_t{facts.sliding_window} * (shape.unified ? shape.sequences : 1);
  return pad(std::min(full, windows + ubatch), cells_step);
}

std::uint64_t layer_kv_bytes(const ModelFacts& facts, const ContextShape& shape, const LayerMemory& layer) {
  const std::uint64_t streams = shape.unified ? 1 : shape.sequences;
  const std::uint64_t cells = (layer.windowed ? windowed_cells(facts, shape) : cells_of_sequence(shape)) * streams;
  std::uint64_t values = layer.value_values;
  if (!shape.flash_attention && values > 0) {  // transposed V has the widest layer's width everywhere
    for (const LayerMemory& each : facts.layers) values = std::max<std::uint64_t>(values, each.value_values);
  }
  return cells * (ggml_row_size(shape.type_k, layer.key_values) +
                  ggml_row_size(shape.type_v, static_cast<std::int64_t>(values))) +
         layer.state_values * sizeof(float) * shape.sequences;
}

// The head on an accelerator: a copy of the token embeddings where the two are one.
std::uint64_t output_bytes(const ModelFacts& facts) {
  return facts.output_bytes + (facts.output_tied ? facts.input_bytes : 0);
}

// What may be taken of a device's free memory.
std::uint64_t takeable(std::uint64_t free_bytes, bool shared) {
  const std::uint64_t usable = shared ? free_bytes / 2 : free_bytes;  // other programs need the other half
  const std::uint64_t reserve = std::max(reserve_least, free_bytes / reserve_share);
  return std::min(usable, free_bytes - std::min(free_bytes, reserve));
}

bool all_fit(const std::vector<DeviceNeed>& devices) { return std::ranges::all_of(devices, &DeviceNeed::fits); }

}  // namespace

std::uint32_t sequences_for(const ModelFacts& facts, std::uint32_t parallel, bool unified, bool kv_cache) {
  if (facts.recurrent || facts.hybrid) return kv_cache ? 2 * parallel + 1 : parallel;  // a state costs memory
  return unified ? 2 * parallel + 64 : parallel;
}

bool type_possible(const ModelFacts& facts, ggml_type type) {
  const auto block = static_cast<std::uint32_t>(ggml_blck_size(type));
  return std::ranges::all_of(facts.layers, [&](const LayerMemory& layer) {
    return layer.key_values % block == 0 && layer.value_values % block == 0;
  });
}

std::uint64_t kv_bytes(const ModelFacts& facts, const ContextShape& shape) {
  std::uint64_t total = 0;
  for (const LayerMemory& layer : facts.layers) total += layer_kv_bytes(facts, shape, layer);
  return total;
}

std::uint64_t compute_bytes(const ModelFacts& facts, const ContextShape& shape) {
  const std::uint64_t ubatch =
      std::min({shape.ubatch_tokens, shape.batch_tokens, static_cast<std::uint32_t>(pad(shape.cells, cells_step))});
  const std::uint64_t tokens = pad(ubatch, shape.sequences);
  const std::uint64_t cells = cells_of_sequence(shape);
  const std::uint64_t window = any_windowed(facts) ? windowed_cells(facts, shape) : 0;
  const std::uint64_t width = facts.embedding_length;
  const bool attends = std::ranges::any_of(facts.layers, [](const LayerMemory& layer) { return layer.key_values > 0; });

  // Bytes for each token of a ubatch: the masks live all through; of the rest only the larger of the two halves of a
  // layer, since one's buffers are reused for the other.
  const std::uint64_t mask = attends ? (cells + window) * (shape.flash_attention ? 2 : 4) : 0;
  const std::uint64_t feed_forward = 4 * (4 * std::uint64_t{facts.feed_forward_length} + width);
  std::uint64_t attention = 4 * (4 * width + 3 * std::uint64_t{facts.query_values});
  if (attends && !shape.flash_attention) attention += 4 * std::uint64_t{facts.heads} * cells;
  const std::uint64_t recurrent = 4 * (8 * std::uint64_t{facts.state_inner} + width);
  const std::uint64_t positions = 64;
  std::uint64_t state = 0;
  std::uint64_t key_values = 0;
  for (const LayerMemory& layer : facts.layers) {
    state = std::max(state, layer.state_values);
    key_values = std::max<std::uint64_t>(key_values, layer.key_values);
  }
  std::uint64_t layers = tokens * std::max({feed_forward, attention, recurrent});
  layers += state * sizeof(float) * shape.sequences * 5 / 4;  // gathered for a batch
  if (facts.latent_attention && !shape.flash_attention) {     // V is copied out of K
    layers += cells * (shape.unified ? 1 : shape.sequences) * key_values * 2;
  }
  // The head's buffers come after those of the layers, in their place.
  const std::uint64_t row = std::uint64_t{facts.vocabulary} * sizeof(float);
  const std::uint64_t rows = shape.outputs_max == 0 ? tokens : std::min<std::uint64_t>(tokens, shape.outputs_max);
  const std::uint64_t head = rows * (row + 8 * width) + tokens * 8 * width;
  const std::uint64_t activations =
      tokens * std::max<std::uint64_t>(width, facts.feed_forward_length) * 2;  // quantised
  const std::uint64_t output = shape.sequences * row;                          // where callers read the logits
  return tokens * (mask + positions) + std::max(layers, head) + activations + output;
}

std::vector<DeviceNeed> memory_need(const ModelFacts& facts, const ContextShape& shape, std::int32_t gpu_layers,
                                    const MemoryBudget& budget) {
  std::vector<DeviceNeed> devices;
  double free_total = 0;
  for (const DeviceBudget& device : budget.accelerators) {
    devices.push_back({.device = device.name,
                       .description = device.description,
                       .available_bytes = takeable(device.free_bytes, false)});
    free_total += static_cast<double>(device.free_bytes);
  }
  devices.push_back({.device = budget.host.name,
                     .description = budget.host.description,
                     .available_bytes = takeable(budget.host.free_bytes, budget.host_shared),
                     .tier_bytes = shape.host_tier_bytes});
  DeviceNeed& host = devices.back();

  // As libllama spreads them: the last `gpu_layers` of layers and head, in runs as long as the free memory.
  const auto layers = static_cast<std::uint32_t>(facts.layer_bytes.size());
  const std::uint32_t all = layers + 1;
  const std::uint32_t offloaded = budget.accelerators.empty() ? 0
                                  : gpu_layers < 0            ? all
                                                              : std::min(all, static_cast<std::uint32_t>(gpu_layers));
  const auto device_of = [&](std::uint32_t layer) -> DeviceNeed& {
    if (layer + offloaded < all) return host;
    const double at = static_cast<double>(layer + offloaded - all) / offloaded;
    double edge = 0;
    for (std::size_t i = 0; i + 1 < devices.size(); ++i) {
      edge += static_cast<double>(budget.accelerators[i].free_bytes) / free_total;
      if (at < edge) return devices[i];
    }
    return devices[devices.size() - 2];
  };
  for (std::uint32_t layer = 0; layer < layers; ++layer) {
    DeviceNeed& device = device_of(layer);
    device.weights_bytes += facts.layer_bytes[layer];
    if (layer < facts.layers.size()) device.kv_bytes += layer_kv_bytes(facts, shape, facts.layers[layer]);
  }
  host.weights_bytes += facts.input_bytes;
  DeviceNeed& head = device_of(layers);
  head.weights_bytes += &head == &host ? facts.output_bytes : output_bytes(facts);

  const std::uint64_t compute = compute_bytes(facts, shape);
  for (DeviceNeed& device : devices) {
    if (&device == &host ? offloaded < all : device.weights_bytes > 0) device.compute_bytes = compute;
  }
  if (offloaded == all) {  // inputs, logits and masks begin or end in host memory all the same
    host.compute_bytes = compute / 4;
  }
  if (budget.address_space_bytes) {
    // A mapped file counts in full, and what the CPU keeps rearranged counts again.
    const std::uint64_t more =
        facts.weights_bytes() - host.weights_bytes + facts.repackable_bytes + address_space_reserve;
    const std::uint64_t room = *budget.address_space_bytes - std::min(*budget.address_space_bytes, more);
    host.available_bytes = std::min(host.available_bytes, room);
  }
  return devices;
}

namespace {

// The largest multiple of the step up to `most` for which everything fits; 0: none.
std::uint32_t largest_cells(const ModelFacts& facts, ContextShape shape, std::int32_t gpu_layers,
                            const MemoryBudget& budget, std::uint32_t most) {
  std::uint32_t fitting = 0;
  std::uint32_t over = most / cells_step + 1;
  while (fitting + 1 < over) {
    const std::uint32_t middle = fitting + (over - fitting) / 2;
    shape.cells = middle * cells_step;
    (all_fit(memory_need(facts, shape, gpu_layers, budget)) ? fitting : over) = middle;
  }
  return fitting * cells_step;
}

ContextShape shape_for(const ModelFacts& facts, const SizingRequest& request, std::uint32_t parallel) {
  return {
      .cells = request.cells,
      .sequences = sequences_for(facts, parallel, request.unified, request.kv_cache),
      .batch_tokens = std::max(request.batch_tokens, sequences_for(facts, parallel, request.unified, request.kv_cache)),
      .ubatch_tokens = request.ubatch_tokens,
      .type_k = request.type_k,
      .type_v = request.type_v,
      .flash_attention = request.flash_attention,
      .unified = request.unified,
      .swa_full = request.unified && request.kv_cache,
      .host_tier_bytes = request.host_tier_bytes.value_or(0)};
}

// Cells worth having: a full context for one, or a typical one for each.
std::uint32_t wanted_cells(const ModelFacts& facts, std::uint32_t parallel, std::uint32_t sequences, bool unified) {
  const std::uint64_t one = pad(std::max(facts.context_train, cells_least), cells_step);
  if (facts.recurrent) return static_cast<std::uint32_t>(std::min<std::uint64_t>(one, 1U << 30));
  const std::uint64_t each = std::min<std::uint64_t>(one, context_typical) * parallel;
  const std::uint64_t cells = unified ? std::max(one, each) : one * sequences;
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(cells, 1U << 30));
}

std::string type_pair(const ContextShape& shape) {
  const std::string k = ggml_type_name(shape.type_k);
  return shape.type_k == shape.type_v ? k : k + "/" + ggml_type_name(shape.type_v);
}

std::string need_text(const DeviceNeed& need) {
  std::string text =
      fmt::format("{} = {} weights + {} KV + {} compute", bytes_text(need.total_bytes()),
                  bytes_text(need.weights_bytes), bytes_text(need.kv_bytes), bytes_text(need.compute_bytes));
  if (need.tier_bytes > 0) text += fmt::format(" + {} host tier", bytes_text(need.tier_bytes));
  return text;
}

std::uint64_t bytes_per_cell(const ModelFacts& facts, ContextShape shape) {
  shape.cells = (shape.unified ? 1 : shape.sequences) * 64 * cells_step;
  const std::uint64_t few = kv_bytes(facts, shape);
  const std::uint32_t cells = shape.cells;
  shape.cells *= 2;
  return (kv_bytes(facts, shape) - few) / cells;
}

std::uint64_t state_bytes(const ModelFacts& facts) {
  std::uint64_t values = 0;
  for (const LayerMemory& layer : facts.layers) values += layer.state_values;
  return values * sizeof(float);
}

void explain(const ModelFacts& facts, const SizingRequest& request, const MemoryBudget& budget, Sizing& sizing) {
  auto& why = sizing.why;
  for (std::size_t i = 0; i < sizing.devices.size(); ++i) {
    const DeviceNeed& need = sizing.devices[i];
    const bool host = i + 1 == sizing.devices.size();
    const std::uint64_t free_bytes = host ? budget.host.free_bytes : budget.accelerators[i].free_bytes;
    const bool shared = host && budget.host_shared;
    why.push_back(fmt::format("{}: {} {}; {}{} may be taken; {} {}", need.device, bytes_text(free_bytes),
                              host && !shared ? "left by " + budget.host_limit : "free",
                              shared ? "other programs share it, so half, " : "", bytes_text(need.available_bytes),
                              need.fits() ? "needs" : "would need", need_text(need)));
  }
  if (const std::uint64_t state = state_bytes(facts); state > 0) {
    why.push_back(fmt::format("each of {} sequences keeps a state of {}", sizing.shape.sequences, bytes_text(state)));
  }
  if (!facts.recurrent && facts.decoder) {
    why.push_back(fmt::format("a token takes {} of KV ({}){}", bytes_text(bytes_per_cell(facts, sizing.shape)),
                              type_pair(sizing.shape),
                              any_windowed(facts) && sizing.shape.swa_full
                                  ? "; layers with a window are kept in full, so that prefixes can be shared"
                                  : ""));
    why.push_back(
        request.cells > 0
            ? fmt::format("{} cells as asked for", sizing.shape.cells)
            : fmt::format("{} cells: {}", sizing.shape.cells,
                          sizing.shape.cells >=
                                  wanted_cells(facts, sizing.parallel, sizing.shape.sequences, sizing.shape.unified)
                              ? fmt::format("room for the trained context of {} tokens{}", facts.context_train,
                                            sizing.shape.unified ? ", and for each user's typical conversation"
                                                                 : " for each user")
                              : fmt::format("the most that fits (the model was trained for {})", facts.context_train)));
  }
  if (!facts.memory_exact) {
    why.push_back(fmt::format("{} keeps caches beside K and V that are not counted: take the figures as estimates",
                              facts.architecture));
  }
}

// With the host tier's size settled.
Result<Sizing> choose_context(const ModelFacts& facts, const SizingRequest& request, const MemoryBudget& budget) {
  Sizing sizing;
  const bool unified = request.unified && !facts.recurrent;
  SizingRequest fixed = request;
  fixed.unified = unified;
  sizing.parallel = std::min(parallel_max, request.parallel > 0         ? request.parallel
                                           : unified || facts.recurrent ? parallel_default
                                                                        : streams_default);
  while (true) {
    sizing.shape = shape_for(facts, fixed, sizing.parallel);
    if (request.cells > 0) break;
    const std::uint32_t wanted = wanted_cells(facts, sizing.parallel, sizing.shape.sequences, unified);
    sizing.shape.cells =
        facts.recurrent ? wanted : largest_cells(facts, sizing.shape, request.gpu_layers, budget, wanted);
    const std::uint32_t least =
        std::max(cells_least, cells_step * (unified ? sizing.parallel : sizing.shape.sequences));
    const bool enough = sizing.shape.cells >= std::min(least, wanted) &&
                        all_fit(memory_need(facts, sizing.shape, request.gpu_layers, budget));
    if (enough || request.parallel > 0 || sizing.parallel == 1) break;
    sizing.parallel /= 2;
  }
  if (sizing.shape.cells < cells_least) sizing.shape.cells = cells_least;
  sizing.devices = memory_need(facts, sizing.shape, request.gpu_layers, budget);
  sizing.fits = all_fit(sizing.devices);
  sizing.context_tokens = facts.recurrent ? sizing.shape.cells : cells_of_sequence(sizing.shape);
  if (facts.context_train > 0) sizing.context_tokens = std::min(sizing.context_tokens, facts.context_train);
  if (!sizing.fits && request.cells == 0) {
    const auto tight = std::ranges::find_if_not(sizing.devices, &DeviceNeed::fits);
    return fail(
        ErrorCode::exhausted,
        "not enough memory on {}: {} may be taken ({}), and even {} cells for {} at once need {}; use a smaller "
        "model, or allow more memory",
        tight->device, bytes_text(tight->available_bytes),
        tight + 1 == sizing.devices.end() ? budget.host_limit : "free memory", sizing.shape.cells, sizing.parallel,
        need_text(*tight));
  }
  return sizing;
}

}  // namespace

Result<Sizing> choose(const ModelFacts& facts, const SizingRequest& request, const MemoryBudget& budget) {
  const std::uint64_t quarter =
      std::min(takeable(budget.host.free_bytes, budget.host_shared) / 4, host_tier_bytes_most);
  const bool worthwhile = request.kv_cache && facts.decoder && quarter >= host_tier_bytes_least;
  SizingRequest settled = request;
  settled.host_tier_bytes = request.host_tier_bytes.value_or(worthwhile ? quarter : 0);
  auto sizing = choose_context(facts, settled, budget);
  if (!request.host_tier_bytes && (!sizing || !sizing->fits)) {
    settled.host_tier_bytes = 0;
    sizing = choose_context(facts, settled, budget);
    if (sizing && worthwhile) {
      DeviceNeed& host = sizing->devices.back();
      const std::uint64_t left = host.available_bytes - std::min(host.available_bytes, host.total_bytes());
      host.tier_bytes = left < host_tier_bytes_least ? 0 : std::min(left, quarter);
      sizing->shape.host_tier_bytes = host.tier_bytes;
    }
  }
  if (sizing) explain(facts, request, budget, *sizing);
  return sizing;
}

std::vector<SizingCell> sizing_table(const ModelFacts& facts, const SizingRequest& request,
                                     const MemoryBudget& budget) {
  std::vector<std::uint32_t> contexts;
  for (std::uint64_t context = 2048; context < facts.context_train; context *= 4)
    contexts.push_back(static_cast<std::uint32_t>(context));
  contexts.push_back(facts.context_train);
  std::vector<SizingCell> cells;
  for (const ggml_type type : {GGML_TYPE_F16, GGML_TYPE_Q8_0, GGML_TYPE_Q4_0}) {
    if (!type_possible(facts, type) || (ggml_is_quantized(type) && !request.flash_attention)) continue;
    for (const std::uint32_t users : {1U, 4U, 16U, 64U}) {
      for (const std::uint32_t context : contexts) {
        SizingRequest each = request;
        each.type_k = each.type_v = type;
        ContextShape shape = shape_for(facts, each, users);
        const std::uint64_t total = std::uint64_t{context} * users;
        shape.cells = static_cast<std::uint32_t>(std::min<std::uint64_t>(total, UINT32_MAX - cells_step));
        const auto devices = memory_need(facts, shape, request.gpu_layers, budget);
        SizingCell cell{
            .users = users, .context = context, .type = type, .fits = all_fit(devices) && total == shape.cells};
        for (const DeviceNeed& device : devices) cell.bytes += device.kv_bytes + device.compute_bytes;
        cells.push_back(cell);
      }
    }
  }
  return cells;
}

}  // namespace caravan::engine
