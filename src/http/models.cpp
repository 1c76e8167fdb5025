#include "http/models.h"

#include <cstdint>
#include <string_view>

#include <boost/json.hpp>

#include "engine/engine.h"
#include "engine/model.h"
#include "http/api_error.h"
#include "http/json_text.h"

namespace caravan::http {
namespace {

namespace json = boost::json;

json::object model_object(const Serving& serving) {
  const engine::ModelInfo& info = serving.model->info();
  json::object meta;
  meta["n_vocab"] = info.vocabulary;
  meta["n_ctx"] = serving.engine->status()->context_tokens;
  meta["n_ctx_train"] = info.context_train;
  meta["n_embd"] = info.embedding_length;
  meta["n_params"] = info.parameters;
  meta["size"] = info.size_bytes;
  json::object object;
  object["id"] = valid_utf8(info.name);
  object["object"] = "model";
  object["created"] = static_cast<std::int64_t>(serving.since);
  object["owned_by"] = "caravan";
  object["meta"] = std::move(meta);
  return object;
}

}  // namespace

HttpResponse answer_models(const HttpRequest& /*request*/, const Serving& serving, ServerState& /*state*/) {
  json::array data;
  data.emplace_back(model_object(serving));
  json::object list;
  list["object"] = "list";
  list["data"] = std::move(data);
  return {.status = 200, .body = to_text(list), .headers = {}};
}

HttpResponse answer_model(const HttpRequest& request, const Serving& serving, ServerState& /*state*/) {
  constexpr std::string_view prefix = "/models/";
  const std::string_view id = std::string_view(request.path).substr(request.path.find(prefix) + prefix.size());
  if (id != serving.model->info().name)
    return error_response(
        simple_error(404, fmt::format("there is no model \"{}\"; \"{}\" is served", id, serving.model->info().name),
                     "model_not_found"));
  return {.status = 200, .body = to_text(model_object(serving)), .headers = {}};
}

}  // namespace caravan::http
