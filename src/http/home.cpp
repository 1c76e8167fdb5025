#include "http/home.h"

#include <string>
#include <string_view>

#include <fmt/format.h>

#include "http/routes.h"

namespace caravan::http {
namespace {

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

constexpr std::string_view page = R"(<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>Caravan</title>
<style>body{{font:16px/1.5 system-ui,sans-serif;max-width:44rem;margin:3rem auto;padding:0 1rem}}td{{padding-right:1.5rem}}</style>
</head>
<body>
<h1>Caravan</h1>
<p>Serves a language model to many users and computes what they have in common once.
This is node <code>{}</code>; point any OpenAI client at <code>/v1</code>.</p>
<table>
{}</table>
</body>
</html>
)";

}  // namespace

HttpResponse answer_home(const HttpRequest& /*request*/, ServerState& state) {
  std::string rows;
  for (const Route& route : routes())
    rows += fmt::format("<tr><td><code>{}</code></td><td><code>{}</code></td></tr>\n",
                        route.method == Method::get ? "GET" : "POST", escaped(route.path));
  return {.status = 200,
          .body = fmt::format(page, escaped(state.node_id), rows),
          .content_type = "text/html; charset=utf-8",
          .headers = {}};
}

}  // namespace caravan::http
