// Cases 8 to 11, 13, 14 and 17 to 19: what happens at the edges of context, memory and time.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { ask, refusal, Server, synthesize, tokens } from "./harness.mjs";

const cached = (answer) => answer.usage.prompt_tokens_details.cached_tokens;

async function serving(flags, work, options) {
  const server = await Server.start(flags, options);
  try {
    await work(server);
  } finally {
    await server.stop();
  }
}

describe("context", () => {
  let server;
  before(async () => {
    server = await Server.start(["-c", "1024", "-np", "2"]);
  });
  after(() => server.stop());

  test("case 10: longer than the context is 400 with both counts, stream or not, warm or cold", async () => {
    const { body: props } = await server.get("/props");
    const limit = props.default_generation_settings.n_ctx;
    assert.equal(limit, 1024);
    const prompt = tokens(limit + 1, 10);
    for (let warm = 0; warm < 2; ++warm) {
      for (const stream of [false, true]) {
        const answer = await server.post("/v1/completions", { prompt, stream, max_tokens: 1 });
        assert.equal(answer.status, 400);
        assert.match(answer.headers.get("content-type"), /^application\/json/);
        assert.equal(answer.body.error.n_prompt_tokens, limit + 1);
        assert.equal(answer.body.error.n_ctx, limit);
      }
      await server.complete(prompt.slice(0, limit));
    }
    const cold = await server.post("/v1/completions", { prompt, cache_prompt: false });
    assert.equal(cold.status, 400);
  });

  test("case 10: exactly the context is served, and what does not fit behind a prompt ends with length", async () => {
    const full = await server.complete(tokens(1024, 101), { max_tokens: 5 });
    assert.equal(full.choices[0].finish_reason, "length");
    assert.equal(full.usage.completion_tokens, 1);
    const near = await server.complete(tokens(1014, 102), { max_tokens: 500, ignore_eos: true });
    assert.equal(near.choices[0].finish_reason, "length");
    assert.ok(near.usage.completion_tokens >= 10 && near.usage.completion_tokens <= 11, `${near.usage.completion_tokens}`);
  });

  test("case 9 and 19: without a limit a model that never ends stops at the context, with length", async () => {
    for (const more of [{ max_tokens: undefined }, { max_tokens: -1 }, { max_tokens: 1e9 }, { max_tokens: 2 ** 31 }]) {
      const answer = await server.complete(tokens(900, 19), { ...more, ignore_eos: true });
      assert.equal(answer.choices[0].finish_reason, "length");
      assert.ok(answer.usage.total_tokens >= 1024 && answer.usage.total_tokens <= 1025, `${answer.usage.total_tokens}`);
    }
  });

  test("case 19: max_tokens that is no number of tokens is 400", async () => {
    for (const max_tokens of [0, -2, 1.5, "10", [], {}, true, 1e300]) {
      const answer = await server.post("/v1/completions", { prompt: "We", max_tokens });
      assert.equal(answer.status, 400, `${JSON.stringify(max_tokens)}: ${answer.text}`);
      assert.match(answer.body.error.message, /max_tokens/);
    }
  });
});

test("case 9: --context-shift goes on, and nothing shifted is found under the unshifted tokens", () =>
  serving(["-c", "512", "-np", "1", "--context-shift", "--keep", "16"], async (server) => {
    const prompt = tokens(480, 9);
    const { result, rise } = await server.rise(() => server.complete(prompt, { max_tokens: 700, ignore_eos: true, logprobs: 0 }));
    assert.equal(result.usage.completion_tokens, 700);
    assert.ok(rise("caravan_context_shifts_total") >= 2);
    // Only what the shift kept in place may be shared with the same prompt.
    assert.ok(cached(await server.complete(prompt)) <= 16);
    assert.equal(cached(await server.complete(prompt)), 479);
  }));

for (const [shape, ...flags] of [["iswa"], ["mla"], ["recurrent"], ["hybrid"], ["dense", "-ctk", "q8_0"]]) {
  test(`case 9: --context-shift is refused at the start for ${[shape, ...flags].join(" ")}`, async () => {
    const { code, log } = await refusal(["-m", synthesize(shape), "-c", "512", "--context-shift", ...flags]);
    assert.equal(code, 1);
    assert.match(log, /^caravan: .*context-shift.*$/m);
  });
}

test("case 11: two sequences, sixty sessions with a secret each, eight at once: nobody hears another's", () =>
  serving(["-np", "2", "-c", "4096"], async (server) => {
    const sessions = Array.from({ length: 60 }, (_, i) => ({ days: 11 + i, turns: 0 }));
    const order = sessions.concat(sessions).map((session, i) => ({ session, key: (i * 7919) % 121 })).sort((a, b) => a.key - b.key);
    const answered = [];
    const worker = async () => {
      for (let next; (next = order.pop()); ) {
        const { days } = next.session;
        const { body } = await server.post("/v1/chat/completions", {
          messages: ask("How long can I return an item?", `You are Mira, the support assistant of Northridge Outdoor. Items can be returned within ${days} days.`),
          temperature: 0,
          max_tokens: 30,
        });
        answered.push({ days, text: body.choices[0].message.content });
      }
    };
    await Promise.all(Array.from({ length: 8 }, worker));
    assert.equal(answered.length, 120);
    const wrong = answered.filter(({ days, text }) => !text.includes(`${days} days`));
    assert.deepEqual(wrong, []);
  }));

test("case 13: four streams on a pool too small for all finish by preemption, and a long prompt works afterwards", () =>
  serving(["-c", "512", "-np", "4"], async (server) => {
    const { result, rise } = await server.rise(() =>
      Promise.all([1, 2, 3, 4].map((i) => server.complete(tokens(60, 130 + i), { max_tokens: 300, ignore_eos: true }))),
    );
    for (const answer of result) assert.equal(answer.usage.completion_tokens, 300);
    assert.ok(rise("caravan_preemptions_total") > 0);
    const long = await server.complete(tokens(500, 135));
    assert.equal(long.usage.completion_tokens, 1);
    assert.equal((await server.cache()).recoveries, 0);
  }));

test("case 14: a long prefill does not stall another's stream", () =>
  serving(["-m", synthesize("dense", "--layers", "8", "--width", "256", "--context", "16384"), "-c", "16384", "-np", "2"], async (server) => {
    // How many tokens of the stream arrive while the other's prompt is evaluated: with one chunk after another, at least one
    // a chunk; without, none.
    await server.complete(tokens(64, 141)); // rates are known
    const controller = new AbortController();
    const response = await fetch(server.url + "/v1/completions", {
      method: "POST",
      signal: controller.signal,
      body: JSON.stringify({ prompt: tokens(16, 142), max_tokens: 4000, ignore_eos: true, stream: true }),
    });
    let events = 0;
    const reading = (async () => {
      const decoder = new TextDecoder();
      for await (const part of response.body) events += decoder.decode(part).split("data: ").length - 1;
    })().catch(() => {});
    while (events < 3) await new Promise((resolve) => setTimeout(resolve, 5));
    const before = events;
    const { result, rise } = await server.rise(() => server.complete(tokens(6000, 143)));
    const during = events - before;
    controller.abort();
    await reading;
    assert.equal(result.usage.prompt_tokens, 6000);
    const steps = rise("caravan_steps_total");
    assert.ok(steps >= 6000 / 2048, `${steps} steps`);
    assert.ok(during >= 6, `${during} events during ${steps} steps`);
    assert.ok(during >= steps / 2, `${during} events during ${steps} steps`);
  }));

const types = ["f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1"];
for (const flash of ["auto", "on", "off"]) {
  test(`case 18: every K and V type with flash attention ${flash} starts, or is refused in one line`, async () => {
    const pairs = types.flatMap((k) => (k === "f16" ? types.map((v) => [k, v]) : [[k, "f16"], [k, k]]));
    for (const [k, v] of pairs) {
      const flags = ["-ctk", k, "-ctv", v, "-fa", flash, "-c", "512", "-np", "2"];
      let server;
      try {
        server = await Server.start(flags);
      } catch (error) {
        assert.equal(error.end?.signal ?? null, null, `${flags.join(" ")}: ${error.message}`);
        assert.ok([1, 2].includes(error.end.code), error.message);
        assert.match(error.log, /^caravan: .*$/m);
        assert.ok(flash === "off", `${flags.join(" ")} is refused: ${error.log}`);
        continue;
      }
      const answer = await server.complete(tokens(40, 18), { max_tokens: 4, ignore_eos: true });
      assert.equal(answer.usage.completion_tokens, 4);
      await server.stop();
    }
  });
}
