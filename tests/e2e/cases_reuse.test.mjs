// Cases 1 to 5, 12: what is computed once and shared within one process.
import assert from "node:assert/strict";
import { test } from "node:test";
import { ask, eventually, Server, synthesize, tokens } from "./harness.mjs";

const cached = (answer) => answer.usage.prompt_tokens_details.cached_tokens;

// Serves with `flags` while `work` runs.
async function serving(flags, work) {
  const server = await Server.start(flags);
  try {
    await work(server);
  } finally {
    await server.stop();
  }
}

test("case 1: a prompt comes back after an unrelated one, on one sequence", () =>
  serving(["-np", "1", "-c", "4096"], async (server) => {
    const prompt = tokens(512, 1);
    assert.equal(cached(await server.complete(prompt)), 0);
    await server.complete(tokens(20, 2));
    assert.equal(cached(await server.complete(prompt)), 511);
    assert.equal(cached(await server.complete(tokens(512, 3))), 0);
  }));

test("case 1: with the cache off nothing comes back", () =>
  serving(["-np", "1", "-c", "4096", "--no-kv-cache"], async (server) => {
    const prompt = tokens(512, 1);
    for (let i = 0; i < 2; ++i) {
      const answer = await server.complete(prompt);
      assert.equal(cached(answer), 0);
      assert.equal(answer.caravan.miss.reason, "disabled");
    }
    assert.equal((await server.cache()).cells_used, 0);
  }));

test("case 1: fifty other prompts between", () =>
  serving(["-np", "1", "-c", "4096"], async (server) => {
    const prompt = tokens(512, 1);
    await server.complete(prompt);
    for (let i = 0; i < 50; ++i) await server.complete(tokens(20, 100 + i));
    assert.equal(cached(await server.complete(prompt)), 511);
  }));

test("case 1: twenty long prompts in rotation, which fit together", () =>
  serving(["-m", synthesize("dense", "--context", "16384"), "-np", "1", "-c", "12288"], async (server) => {
    const prompts = Array.from({ length: 20 }, (_, i) => tokens(512, 200 + i));
    for (const prompt of prompts) assert.ok(cached(await server.complete(prompt)) < 16);
    for (const prompt of prompts) assert.equal(cached(await server.complete(prompt)), 511);
  }));

test("case 2: at every length around a block at least one token is evaluated", () =>
  serving(["--block-tokens", "64"], async (server) => {
    for (const length of [1, 2, 63, 64, 65, 128]) {
      const prompt = tokens(length, 300 + length);
      for (let time = 0; time < 3; ++time) {
        const { result, rise } = await server.rise(() => server.complete(prompt));
        assert.equal(result.usage.prompt_tokens, length);
        assert.equal(cached(result), time === 0 ? cached(result) : length - 1);
        assert.ok(cached(result) <= length - 1);
        assert.equal(rise("caravan_prompt_tokens_computed_total"), length - cached(result));
      }
    }
  }));

test("case 3: a prefix is shared with a request that is still generating, which is unchanged", () =>
  serving(["-np", "4", "-c", "4096"], async (server) => {
    // The grammar keeps X talking, and the model sure of every word, so that its text may not change.
    const x = {
      messages: ask("How long can I return an item?"),
      grammar: 'root ::= ("You can return it within " [0-9]+ " days. "){40}',
      temperature: 0,
    };
    const alone = await server.post("/v1/chat/completions", { ...x, cache_prompt: false });
    assert.match(alone.body.choices[0].message.content, /^(You can return it within \d+ days. ){40}$/);
    const running = server.post("/v1/chat/completions", x);
    await eventually(async () => (await server.get("/slots")).body.some((slot) => slot.n_decoded > 0), "a token of X");
    const y = await server.post("/v1/chat/completions", { messages: ask("How long does a refund take?"), max_tokens: 8 });
    const decoding = (await server.get("/slots")).body.filter((slot) => slot.state === "decoding");
    assert.equal(decoding.length, 1, "X is still generating");
    assert.ok(cached(y.body) > 50, `${cached(y.body)} cached`);
    assert.equal((await running).body.choices[0].message.content, alone.body.choices[0].message.content);
  }));

test("case 4: ten arrivals at once prefill their prefix once, and hold it once", () =>
  serving(["-np", "10", "-c", "4096"], async (server) => {
    const prefix = tokens(1000, 4);
    const { result, rise } = await server.rise(() =>
      Promise.all(Array.from({ length: 10 }, (_, i) => server.complete(prefix.concat(tokens(20, 40 + i)), { max_tokens: 8, ignore_eos: true }))),
    );
    assert.equal(rise("caravan_prompt_tokens_computed_total"), 1000 + 10 * 20);
    assert.equal(result.filter((answer) => cached(answer) === 0).length, 1);
    assert.equal(result.filter((answer) => cached(answer) === 1000).length, 9);
    assert.ok((await server.cache()).cells_peak <= 1000 + 10 * 28);
  }));

test("case 4: with the cache off each prefills alone", () =>
  serving(["-np", "10", "-c", "4096", "--no-kv-cache"], async (server) => {
    const prefix = tokens(200, 4);
    const { rise } = await server.rise(() =>
      Promise.all(Array.from({ length: 10 }, (_, i) => server.complete(prefix.concat(tokens(20, 40 + i))))),
    );
    assert.equal(rise("caravan_prompt_tokens_computed_total"), 10 * 220);
  }));

for (const shape of ["dense", "qknorm", "iswa", "mla", "recurrent", "hybrid", "hybrid-conv"]) {
  test(`case 5: ${shape} serves in every layout, sharing what it can and saying what it cannot`, async () => {
    for (const layout of ["auto", "unified", "streams"]) {
      await serving(["-m", synthesize(shape), "-np", "4", "-c", "4096", "--kv-layout", layout], async (server) => {
        const prompt = tokens(300, 5);
        const first = await server.complete(prompt, { max_tokens: 8, ignore_eos: true });
        const again = await server.complete(prompt, { max_tokens: 8, ignore_eos: true });
        const longer = await server.complete(prompt.concat(tokens(30, 51)), { max_tokens: 8, ignore_eos: true });
        const other = await server.complete(tokens(300, 52), { max_tokens: 8, ignore_eos: true });
        const branches = await Promise.all([1, 2, 3].map((i) => server.complete(prompt.concat(tokens(20, 500 + i)), { max_tokens: 8, ignore_eos: true })));
        for (const answer of [first, again, longer, other, ...branches]) {
          assert.equal(answer.usage.completion_tokens, 8);
          assert.ok(Number.isInteger(cached(answer)));
        }
        assert.equal(cached(first), 0);
        assert.ok(cached(other) < 16, "an unrelated prompt hits nothing");
        const { body: health } = await server.get("/health");
        const { layout: chosen } = await server.cache();
        if (layout === "streams") assert.equal(chosen, "streams");
        if (layout === "unified" && chosen !== "unified") assert.ok(health.notes?.length > 0, "a fallback is told");
        // What is not shared to the last token is told.
        if (cached(again) < 299) assert.ok(health.notes?.length > 0, `cached ${cached(again)} of 300, and no word of it`);
        if (["dense", "qknorm", "mla"].includes(shape)) assert.equal(cached(again), 299);
        assert.equal((await server.cache()).recoveries, 0);
      });
    }
  });
}

test("case 12: nothing of one server is found by another with other KV types or another model", async () => {
  // One process keeps one namespace; a second one begins empty whatever the first had.
  const prompt = tokens(200, 12);
  for (const flags of [[], ["-ctk", "q8_0"], ["-m", synthesize("dense")], ["-m", synthesize("dense", "--seed", "2")]])
    await serving(flags, async (server) => {
      assert.equal(cached(await server.complete(prompt)), 0);
      assert.equal(cached(await server.complete(prompt)), 199);
    });
});
