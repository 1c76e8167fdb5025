// Errors are OpenAI-shaped, name the field, and never 5xx for what the client did.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import OpenAI from "openai";
import { ask, eventually, Server, tokens } from "./harness.mjs";

let server;
before(async () => {
  server = await Server.start(["-c", "2048", "-np", "1", "--queue-max", "2", "--body-bytes-max", "64K"]);
});
after(() => server.stop());

const shaped = (answer, status) => {
  assert.equal(answer.status, status, answer.text);
  const { error } = answer.body;
  assert.equal(typeof error.message, "string");
  assert.ok(error.message.length > 0 && !error.message.includes("\n"), error.message);
  assert.equal(typeof error.type, "string");
  assert.ok("param" in error && "code" in error);
  return error;
};

test("400: the client's own error class, with the field", async () => {
  const client = server.client();
  await assert.rejects(client.chat.completions.create({ model: "any", messages: ask("Hi"), temperature: -1 }), (error) => {
    assert.ok(error instanceof OpenAI.BadRequestError);
    assert.equal(error.param, "temperature");
    assert.match(error.message, /-1/);
    return true;
  });
});

for (const [what, more] of [
  ["no messages", { messages: undefined }],
  ["messages that are no array", { messages: "Hi" }],
  ["empty messages", { messages: [] }],
  ["a message that is no object", { messages: [7] }],
  ["a message without a role", { messages: [{ content: "Hi" }] }],
  ["an unknown role", { messages: [{ role: "wizard", content: "Hi" }] }],
  ["content of the wrong kind", { messages: [{ role: "user", content: 7 }] }],
  ["an image", { messages: [{ role: "user", content: [{ type: "image_url", image_url: { url: "data:," } }] }] }],
  ["top_p above 1", { top_p: 2 }],
  ["n of 0", { n: 0 }],
  ["n of a million", { n: 1_000_000 }],
  ["stop of the wrong kind", { stop: { a: 1 } }],
  ["a broken grammar", { grammar: "root ::= [" }],
  ["a grammar without root", { grammar: 'start ::= "a"' }],
  ["a grammar that recurses on the left", { grammar: 'root ::= root "a" | "a"' }],
  ["a schema that is no schema", { response_format: { type: "json_schema", json_schema: { name: "a", schema: 7 } } }],
  ["an unknown response format", { response_format: { type: "xml" } }],
  ["logit_bias for a token that is none", { logit_bias: { 99999999: 1 } }],
  ["top_logprobs without logprobs", { top_logprobs: 3 }],
  ["too many top_logprobs", { logprobs: true, top_logprobs: 10_000 }],
  ["tools", { tools: [{ type: "function", function: { name: "f" } }] }],
]) {
  test(`400: ${what}`, async () => {
    const body = { messages: ask("Hi"), max_tokens: 2, ...more };
    for (const stream of [false, true]) {
      const error = shaped(await server.post("/v1/chat/completions", { ...body, stream }), 400);
      assert.equal(error.type, "invalid_request_error");
    }
    shaped(await server.post("/v1/chat/completions", { messages: ask("Hi"), max_tokens: 0 }), 400);
  });
}

test("400: bodies that are no JSON object", async () => {
  for (const body of ["", "{", "[]", "null", "7", '"a"', "{} {}", "\u0000", '{"messages":[' + "[".repeat(5000), new Uint8Array([0xff, 0xfe, 0x80])])
    for (const where of ["/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/tokenize", "/detokenize", "/apply-template"])
      shaped(await server.post(where, body), 400);
});

test("404: unknown paths and models", async () => {
  shaped(await server.get("/v1/nothing"), 404);
  assert.equal(shaped(await server.get("/v1/models/nothing"), 404).code, "model_not_found");
  await assert.rejects(server.client().models.retrieve("nothing"), OpenAI.NotFoundError);
});

test("413: a body beyond the limit, and one just within", async () => {
  const body = (bytes) => JSON.stringify({ prompt: "a", max_tokens: 1, user: "", pad: "" }).replace('"pad":""', `"pad":"${"x".repeat(bytes)}"`);
  shaped(await server.post("/v1/completions", body(65 * 1024)), 413);
  const within = await server.post("/v1/completions", body(63 * 1024));
  assert.equal(within.status, 200, within.text);
});

test("429: a full queue says when to come back, and later serves", async () => {
  const controllers = [];
  const long = () => {
    const controller = new AbortController();
    controllers.push(controller);
    fetch(server.url + "/v1/completions", {
      method: "POST",
      signal: controller.signal,
      body: JSON.stringify({ prompt: tokens(4, controllers.length), max_tokens: 2000, ignore_eos: true }),
    }).catch(() => {});
  };
  long();
  await eventually(async () => (await server.metrics()).caravan_requests_running === 1, "a running request");
  long();
  long();
  const refused = await eventually(async () => {
    const answer = await server.post("/v1/completions", { prompt: "We", max_tokens: 1 });
    return answer.status === 429 && answer;
  }, "a full queue");
  shaped(refused, 429);
  assert.ok(Number(refused.headers.get("retry-after")) >= 1);
  controllers.forEach((controller) => controller.abort());
  await server.idle();
  await server.complete("We");
});
