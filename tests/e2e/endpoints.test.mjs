// The calls beside chat: llama-server's, and our own.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { ask, Server, tokens } from "./harness.mjs";

let server;
before(async () => {
  server = await Server.start(["--alias", "desk", "-np", "4", "-c", "4096", "--node-id", "first"]);
});
after(() => server.stop());

test("paths answer with and without /v1", async () => {
  const body = { messages: ask("How long can I return an item?"), max_tokens: 4, temperature: 0 };
  for (const prefix of ["/v1", ""]) {
    assert.equal((await server.post(prefix + "/chat/completions", body)).body.object, "chat.completion");
    assert.equal((await server.post(prefix + "/completions", { prompt: "We", max_tokens: 2 })).body.object, "text_completion");
    assert.equal((await server.post(prefix + "/embeddings", { input: "We" })).body.object, "list");
    assert.equal((await server.get(prefix + "/models")).body.data[0].id, "desk");
    assert.equal((await server.get(prefix + "/models/desk")).body.id, "desk");
  }
  assert.equal((await server.get("/v2/models")).status, 404);
});

test("health: ok, and quick to say so", async () => {
  const { status, body } = await server.get("/health");
  assert.equal(status, 200);
  assert.equal(body.status, "ok");
});

test("tokenize and detokenize are each other's inverse", async () => {
  for (const content of ["How long can I return an item?", "维修费26元", "é 🙂 \n\t", ""]) {
    const { body } = await server.post("/tokenize", { content });
    assert.ok(body.tokens.every(Number.isInteger));
    assert.equal((await server.post("/detokenize", { tokens: body.tokens })).body.content, content);
  }
  const { body } = await server.post("/tokenize", { content: "return", with_pieces: true });
  assert.equal(body.tokens.map((token) => token.piece).join(""), "return");
  assert.equal((await server.post("/detokenize", { tokens: [99999] })).status, 400);
  assert.equal((await server.post("/tokenize", {})).status, 400);
});

test("apply-template gives what a chat evaluates", async () => {
  const messages = ask("How long can I return an item?");
  const { body } = await server.post("/apply-template", { messages });
  assert.match(body.prompt, /<\|im_start\|>system\nYou are Mira/);
  assert.ok(body.prompt.endsWith("<|im_start|>assistant\n"));
  const { body: counted } = await server.post("/tokenize", { content: body.prompt });
  const chat = await server.post("/v1/chat/completions", { messages, max_tokens: 1 });
  assert.equal(chat.body.usage.prompt_tokens, counted.tokens.length);
});

test("props: what llama-server's clients look for", async () => {
  const { body } = await server.get("/props");
  assert.equal(body.total_slots, 4);
  assert.equal(body.default_generation_settings.n_ctx, 4096);
  assert.equal(body.model_alias, "desk");
  assert.match(body.chat_template, /im_start/);
});

test("slots: figures, never text", async () => {
  await server.post("/v1/chat/completions", { messages: ask("How long can I return an item?"), max_tokens: 4 });
  const { body, text } = await server.get("/slots");
  assert.equal(new Set(body.map((slot) => slot.id)).size, body.length);
  assert.ok(body.some((slot) => slot.cells > 0));
  assert.doesNotMatch(text, /Mira|Northridge|return/);
});

test("metrics: Prometheus text, ours and llama-server's, no text of prompts", async () => {
  const answer = await server.get("/metrics");
  assert.match(answer.headers.get("content-type"), /^text\/plain; version=0\.0\.4/);
  const before = await server.metrics();
  await server.complete(tokens(40, 99), { max_tokens: 3, ignore_eos: true });
  const after = await server.metrics();
  const rise = (name) => after[name] - before[name];
  assert.equal(rise("caravan_prompt_tokens_computed_total"), 40);
  assert.equal(rise("caravan_tokens_generated_total"), 3);
  assert.equal(rise("llamacpp:prompt_tokens_total"), 40);
  assert.equal(rise("llamacpp:tokens_predicted_total"), 3);
  assert.equal(rise("caravan_time_to_first_token_seconds_count"), 1);
  // Each family is described once, and its samples follow.
  const families = [...answer.text.matchAll(/^# TYPE (\S+) /gm)].map((match) => match[1]);
  assert.equal(new Set(families).size, families.length);
  assert.doesNotMatch(answer.text, /Mira|Northridge/);
});

test("caravan: cache, sessions and cluster", async () => {
  await server.post("/v1/chat/completions", { messages: ask("Who brings my parcel?"), max_tokens: 2 }, { "x-session-id": "visitor-7" });
  const cache = await server.cache();
  assert.equal(cache.cells_total, 4096);
  assert.ok(cache.cells_used > 0 && cache.cells_used <= cache.cells_peak);
  const sessions = await server.get("/caravan/v1/sessions");
  assert.ok(sessions.body.sessions.some((session) => session.session === "visitor-7"));
  assert.doesNotMatch(sessions.text, /parcel/);
  assert.equal((await server.get("/caravan/v1/cluster")).body.node, "first");
});

test("session: header, then prompt_cache_key, then user", async () => {
  const body = { prompt: "We", max_tokens: 1 };
  const of = async (more, headers) => (await server.post("/v1/completions", { ...body, ...more }, headers)).body.caravan.session;
  assert.equal(await of({ user: "u" }), "u");
  assert.equal(await of({ user: "u", prompt_cache_key: "k" }), "k");
  assert.equal(await of({ user: "u", prompt_cache_key: "k" }, { "x-session-id": "h" }), "h");
  assert.equal(await of({}), "");
});

test("HEAD is GET without a body; the wrong method names the right ones", async () => {
  const head = await fetch(server.url + "/health", { method: "HEAD" });
  assert.equal(head.status, 200);
  assert.equal(await head.text(), "");
  const wrong = await fetch(server.url + "/v1/chat/completions");
  assert.equal(wrong.status, 405);
  assert.match((await wrong.json()).error.message, /POST/);
});
