// What an application does with the openai client.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import OpenAI from "openai";
import { ask, eventually, Server } from "./harness.mjs";

let server;
let client;
before(async () => {
  server = await Server.start();
  client = server.client();
});
after(() => server.stop());

const model = "any";
const chat = (question, more = {}) =>
  client.chat.completions.create({ model, messages: ask(question), temperature: 0, max_tokens: 60, ...more });

test("chat: the answer uses a fact of the system prompt", async () => {
  const answer = await chat("How long can I return an item?");
  assert.match(answer.choices[0].message.content, /42 days/);
  assert.equal(answer.object, "chat.completion");
  assert.equal(answer.choices[0].message.role, "assistant");
  assert.equal(answer.choices[0].finish_reason, "stop");
  const other = await chat("How long can I return an item?", {
    messages: ask("How long can I return an item?", "You are Mira, the support assistant of Northridge Outdoor. Items can be returned within 17 days."),
  });
  assert.match(other.choices[0].message.content, /17 days/);
});

test("chat: Chinese", async () => {
  const answer = await chat("", {
    messages: ask("维修多少钱？", "你是Cedarpeak Outfitters的客服助手。订单可在29小时内取消。维修费26元，需要2周。"),
  });
  assert.match(answer.choices[0].message.content, /26元/);
});

test("stream: the deltas add up to the answer without streaming", async () => {
  const whole = await chat("How long does a refund take?");
  const stream = await chat("How long does a refund take?", { stream: true });
  let text = "";
  let finish = null;
  for await (const chunk of stream) {
    text += chunk.choices[0]?.delta.content ?? "";
    finish ??= chunk.choices[0]?.finish_reason;
  }
  assert.equal(text, whole.choices[0].message.content);
  assert.equal(finish, whole.choices[0].finish_reason);
});

test("stream: the client's own helper follows it to the end", async () => {
  const stream = client.chat.completions.stream({ model, messages: ask("What does shipping cost?"), temperature: 0, max_tokens: 40 });
  const final = await stream.finalChatCompletion();
  assert.match(final.choices[0].message.content, /4\.90/);
});

test("usage: cached_tokens is an integer that tells the truth", async () => {
  const question = "Do you ship free, and what is the usage of that?";
  const cold = await chat(question, { cache_prompt: false });
  const { result: first, rise } = await server.rise(() => chat(question));
  const second = await server.rise(() => chat(question));
  for (const { usage } of [cold, first, second.result]) {
    assert.ok(Number.isInteger(usage.prompt_tokens_details.cached_tokens));
    assert.equal(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens);
    assert.equal(usage.prompt_tokens, cold.usage.prompt_tokens);
  }
  assert.equal(cold.usage.prompt_tokens_details.cached_tokens, 0);
  assert.equal(cold.caravan.miss.reason, "disabled");
  assert.equal(rise("caravan_prompt_tokens_computed_total"), first.usage.prompt_tokens - first.usage.prompt_tokens_details.cached_tokens);
  assert.equal(second.result.usage.prompt_tokens_details.cached_tokens, second.result.usage.prompt_tokens - 1);
  assert.equal(second.rise("caravan_prompt_tokens_computed_total"), 1);
  assert.equal(second.result.caravan.cached.device, second.result.usage.prompt_tokens_details.cached_tokens);
  assert.equal(second.result.caravan.miss.reason, "none");
});

test("usage: of a stream, in a chunk of its own when asked for", async () => {
  const seen = [];
  const stream = await chat("How long can I return an item?", { stream: true, stream_options: { include_usage: true } });
  for await (const chunk of stream) seen.push(chunk);
  const last = seen.pop();
  assert.deepEqual(last.choices, []);
  assert.ok(Number.isInteger(last.usage.prompt_tokens_details.cached_tokens));
  assert.ok(seen.every((chunk) => chunk.usage === null));
  const without = await chat("How long can I return an item?", { stream: true });
  for await (const chunk of without) assert.equal(chunk.usage, undefined);
});

test("n: several answers, one prefill", async () => {
  const { result, rise } = await server.rise(() => chat("How long can I return an item, all of you?", { n: 3, temperature: 1, seed: 7 }));
  assert.deepEqual(result.choices.map((choice) => choice.index), [0, 1, 2]);
  const computed = rise("caravan_prompt_tokens_computed_total");
  // The second and third take all but the one token that gives them their logits.
  assert.ok(computed <= result.usage.prompt_tokens - result.usage.prompt_tokens_details.cached_tokens + 2, `${computed} computed`);
  const stream = await chat("How long can I return an item?", { n: 2, stream: true });
  const finished = [];
  for await (const chunk of stream) for (const choice of chunk.choices) if (choice.finish_reason) finished.push(choice.index);
  assert.deepEqual(finished.sort(), [0, 1]);
});

test("stop: a string and a list", async () => {
  const whole = (await chat("How long can I return an item?")).choices[0].message.content;
  assert.ok(whole.includes("within"), whole);
  for (const stop of ["within", ["never said", "within"]]) {
    const { choices } = await chat("How long can I return an item?", { stop });
    assert.equal(choices[0].message.content, whole.slice(0, whole.indexOf("within")));
    assert.equal(choices[0].finish_reason, "stop");
  }
  const unstopped = await chat("How long can I return an item?", { stop: "never said" });
  assert.equal(unstopped.choices[0].message.content, whole);
});

test("max_tokens: ends with length; max_completion_tokens is the same", async () => {
  for (const limit of ["max_tokens", "max_completion_tokens"]) {
    const { choices, usage } = await chat("How long can I return an item?", { max_tokens: undefined, [limit]: 3 });
    assert.equal(choices[0].finish_reason, "length");
    assert.equal(usage.completion_tokens, 3);
  }
});

test("seed: the same one draws the same, another one another", async () => {
  const draw = async (seed) =>
    (await client.completions.create({ model, prompt: "We", temperature: 3, top_k: 0, top_p: 1, max_tokens: 24, seed, ignore_eos: true, min_p: 0 })).choices[0].text;
  assert.equal(await draw(11), await draw(11));
  assert.notEqual(await draw(11), await draw(12));
});

test("json_schema: the answer is valid", async () => {
  const schema = {
    type: "object",
    properties: { days: { type: "integer" }, kind: { enum: ["return", "refund"] }, sure: { type: "boolean" } },
    required: ["days", "kind", "sure"],
    additionalProperties: false,
  };
  const { choices } = await chat("How long can I return an item?", {
    max_tokens: 300,
    response_format: { type: "json_schema", json_schema: { name: "policy", schema, strict: true } },
  });
  assert.equal(choices[0].finish_reason, "stop");
  const value = JSON.parse(choices[0].message.content);
  assert.ok(Number.isInteger(value.days));
  assert.ok(["return", "refund"].includes(value.kind));
  assert.equal(typeof value.sure, "boolean");
  assert.deepEqual(Object.keys(value).sort(), ["days", "kind", "sure"]);
});

test("json_object: what is generated begins a JSON object, and free text does not", async () => {
  const { choices } = await chat("How long can I return an item?", { response_format: { type: "json_object" }, max_tokens: 100 });
  const text = choices[0].message.content;
  assert.match(text, /^\s*\{/);
  if (choices[0].finish_reason === "stop") assert.equal(typeof JSON.parse(text), "object");
  const free = await chat("How long can I return an item?");
  assert.doesNotMatch(free.choices[0].message.content, /^\s*\{/);
});

test("grammar: GBNF binds the answer", async () => {
  const { choices } = await chat("How long can I return an item?", { grammar: 'root ::= "maybe " [0-9]{3} "!"' });
  assert.match(choices[0].message.content, /^maybe [0-9]{3}!$/);
});

test("logprobs: chat's shape, for every token", async () => {
  const { choices, usage } = await chat("How long can I return an item?", { logprobs: true, top_logprobs: 3 });
  const { content } = choices[0].logprobs;
  assert.equal(content.map((token) => token.token).join(""), choices[0].message.content);
  assert.ok(content.length >= usage.completion_tokens - 1); // the end of the turn has no text
  for (const token of content) {
    assert.ok(token.logprob <= 0);
    assert.equal(token.top_logprobs.length, 3);
    assert.equal(token.top_logprobs[0].logprob, token.logprob); // greedy takes the most probable
    assert.deepEqual(Buffer.from(token.bytes).toString(), token.token);
  }
  assert.equal((await chat("How long can I return an item?")).choices[0].logprobs, null);
});

test("logprobs: completions' shape", async () => {
  const { choices } = await client.completions.create({ model, prompt: "Items can be returned", max_tokens: 5, temperature: 0, logprobs: 2 });
  const { tokens, token_logprobs, top_logprobs, text_offset } = choices[0].logprobs;
  assert.equal(tokens.join(""), choices[0].text);
  assert.equal(token_logprobs.length, tokens.length);
  assert.equal(top_logprobs.length, tokens.length);
  assert.equal(Object.keys(top_logprobs[0]).length, 2);
  assert.deepEqual(text_offset, tokens.map((_, i) => tokens.slice(0, i).join("").length));
});

test("abort: in the middle of a stream frees what it held", async () => {
  const cancelled = (await server.metrics()).caravan_requests_cancelled_total;
  const { rise } = await server.rise(async () => {
    const stream = await client.completions.create({ model, prompt: "We", stream: true, max_tokens: 3000, ignore_eos: true });
    let count = 0;
    for await (const _ of stream) if (++count === 3) break; // the client closes the connection
    await server.reaches("caravan_requests_cancelled_total", cancelled + 1);
    await server.idle();
  });
  assert.equal(rise("caravan_requests_cancelled_total"), 1);
  assert.ok(rise("caravan_tokens_generated_total") < 3000);
  assert.match((await chat("How long can I return an item?")).choices[0].message.content, /42 days/);
});

test("abort: with a signal, without streaming", async () => {
  const controller = new AbortController();
  const { rise } = await server.rise(async () => {
    const request = client.completions.create({ model, prompt: "You", max_tokens: 3000, ignore_eos: true }, { signal: controller.signal });
    request.catch(() => {}); // looked at below; it may end before
    await eventually(async () => (await server.metrics()).caravan_requests_running === 1, "a running request");
    controller.abort();
    await assert.rejects(request, OpenAI.APIUserAbortError);
    await server.idle();
  });
  assert.equal(rise("caravan_requests_cancelled_total"), 1);
});

test("models: list and retrieve", async () => {
  const list = await client.models.list();
  assert.equal(list.data.length, 1);
  const { id } = list.data[0];
  assert.equal((await client.models.retrieve(id)).id, id);
  await assert.rejects(client.models.retrieve("another"), OpenAI.NotFoundError);
});

test("every answer names its node", async () => {
  const { data, response } = await chat("How long can I return an item?").withResponse();
  assert.equal(response.headers.get("x-caravan-node"), data.caravan.node);
});
