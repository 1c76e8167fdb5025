import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { Server, synthesize, tokens } from "./harness.mjs";

const length = (vector) => Math.hypot(...vector);

for (const [name, flags] of [
  ["a generating model", () => []],
  ["a model that only embeds", () => ["-m", synthesize("encoder")]],
]) {
  describe(`embeddings of ${name}`, () => {
    let server;
    let client;
    before(async () => {
      server = await Server.start(flags());
      client = server.client();
    });
    after(() => server.stop());

    test("floats are what base64 holds (case 26)", async () => {
      const input = ["How long can I return an item?", "维修多少钱？"];
      const floats = await client.embeddings.create({ model: "any", input, encoding_format: "float" });
      const packed = await server.post("/v1/embeddings", { input, encoding_format: "base64" });
      assert.equal(typeof packed.body.data[0].embedding, "string");
      assert.deepEqual(floats.data.map((each) => each.index), [0, 1]);
      floats.data.forEach(({ embedding }, i) => {
        const bytes = Buffer.from(packed.body.data[i].embedding, "base64");
        assert.equal(bytes.length, 4 * embedding.length);
        embedding.forEach((value, at) => assert.ok(Math.abs(value - bytes.readFloatLE(4 * at)) < 1e-6));
        assert.ok(Math.abs(length(embedding) - 1) < 1e-3);
      });
      assert.ok(floats.usage.prompt_tokens > 0);
      assert.equal(floats.usage.total_tokens, floats.usage.prompt_tokens);
      // The client asks for base64 by itself and unpacks it.
      const own = await client.embeddings.create({ model: "any", input });
      assert.ok(Math.abs(own.data[1].embedding[3] - floats.data[1].embedding[3]) < 1e-6);
    });

    test("the same text is the same vector, another text another; tokens are their text", async () => {
      const { data } = await client.embeddings.create({ model: "any", input: ["one tent", "two boots", "one tent"] });
      const dot = (a, b) => a.embedding.reduce((sum, value, i) => sum + value * b.embedding[i], 0);
      assert.ok(dot(data[0], data[2]) > 0.999);
      assert.ok(dot(data[0], data[1]) < 0.999);
      const ids = (await server.post("/tokenize", { content: "one tent" })).body.tokens;
      const byTokens = await server.post("/v1/embeddings", { input: [ids] });
      assert.equal(byTokens.status, 200);
      assert.equal(byTokens.body.usage.prompt_tokens, ids.length);
    });

    test("bad inputs are 400", async () => {
      for (const body of [{}, { input: [] }, { input: "" }, { input: 7 }, { input: [[]] }, { input: "a", encoding_format: "hex" },
        { input: "a", dimensions: 3 }, { input: [[1e9]] }, { input: "a\u0000b" }, { input: tokens(100_000) }]) {
        const answer = await server.post("/v1/embeddings", body);
        assert.equal(answer.status, 400, JSON.stringify(body).slice(0, 80) + " -> " + answer.text.slice(0, 200));
        assert.equal(answer.body.error.type, "invalid_request_error");
      }
    });
  });
}

test("a model that only embeds refuses to chat, in one clear line", async () => {
  const server = await Server.start(["-m", synthesize("encoder")]);
  for (const [where, body] of [
    ["/v1/chat/completions", { messages: [{ role: "user", content: "Hello" }] }],
    ["/v1/completions", { prompt: "Hello" }],
  ]) {
    const answer = await server.post(where, body);
    assert.equal(answer.status, 400, answer.text);
    assert.ok(answer.body.error.message.length > 0);
  }
  await server.stop();
});
