// Keys, tenants, admin calls, browsers.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { after, before, describe, test } from "node:test";
import OpenAI from "openai";
import { Server, shop, tokens } from "./harness.mjs";

describe("API keys", () => {
  let server;
  let folder;
  before(async () => {
    folder = mkdtempSync(path.join(os.tmpdir(), "caravan-e2e-"));
    const file = path.join(folder, "keys");
    writeFileSync(file, "# who may come in\nanna:secret-of-anna\n\nbert:secret-of-bert\n");
    server = await Server.start(["--api-key-file", file, "--tenant-isolation", "--admin-key", "secret-of-admin"], { key: "secret-of-anna" });
  });
  after(async () => {
    await server.stop();
    rmSync(folder, { recursive: true });
  });

  test("the right one is served, by bearer token or x-api-key", async () => {
    assert.equal((await server.client().models.list()).data.length, 1);
    const { status } = await fetch(server.url + "/v1/models", { headers: { "x-api-key": "secret-of-bert" } });
    assert.equal(status, 200);
  });

  test("a wrong one or none is 401, and every part that gives something away asks for it", async () => {
    await assert.rejects(server.client({ apiKey: "guess" }).models.list(), OpenAI.AuthenticationError);
    for (const where of ["/v1/models", "/props", "/slots", "/caravan/v1/cache", "/caravan/v1/sessions"]) {
      for (const headers of [{}, { authorization: "Bearer secret-of-ann" }, { authorization: "Bearer" }, { authorization: "Basic secret-of-anna" }]) {
        const answer = await fetch(server.url + where, { headers });
        assert.equal(answer.status, 401, where);
        const { error } = await answer.json();
        assert.equal(error.code, "invalid_api_key");
        assert.doesNotMatch(JSON.stringify(error), /secret-of/);
      }
    }
    const chat = await fetch(server.url + "/v1/chat/completions", { method: "POST", body: "{}" });
    assert.equal(chat.status, 401);
  });

  test("health and metrics are open, and the log holds no key", async () => {
    for (const where of ["/health", "/metrics"]) assert.equal((await fetch(server.url + where)).status, 200);
    assert.doesNotMatch(server.text(), /secret-of/);
  });

  test("admin calls take the admin key alone", async () => {
    assert.equal((await server.get("/caravan/v1/cache")).status, 401);
    const { status } = await fetch(server.url + "/caravan/v1/cache", { headers: { authorization: "Bearer secret-of-admin" } });
    assert.equal(status, 200);
  });

  test("tenants share nothing; one and the same does (case 45 in one process)", async () => {
    const prompt = tokens(300, 45);
    const as = async (key, more = {}) =>
      (await server.post("/v1/completions", { prompt, max_tokens: 1, ...more }, { authorization: `Bearer ${key}` })).body.usage.prompt_tokens_details.cached_tokens;
    assert.equal(await as("secret-of-anna"), 0);
    assert.equal(await as("secret-of-bert"), 0);
    assert.equal(await as("secret-of-anna"), 299);
    // What the body claims is no tenant.
    assert.equal(await as("secret-of-bert", { prompt: prompt.concat(7), user: "anna", tenant: "anna" }), 300);
    assert.equal(await as("secret-of-anna", { prompt: tokens(300, 46), user: "bert" }), 0);
  });
});

test("without isolation, keys share", async () => {
  const server = await Server.start(["--api-key", "one,two"], { key: "one" });
  const prompt = tokens(200, 5);
  await server.complete(prompt);
  server.key = "two";
  assert.equal((await server.complete(prompt)).usage.prompt_tokens_details.cached_tokens, 199);
  await server.stop();
});

test("CORS: only when configured, for the configured origin", async () => {
  const origin = "https://app.example";
  const server = await Server.start(["--cors-origin", origin]);
  const preflight = await fetch(server.url + "/v1/chat/completions", {
    method: "OPTIONS",
    headers: { origin, "access-control-request-method": "POST", "access-control-request-headers": "authorization,content-type" },
  });
  assert.ok([200, 204].includes(preflight.status));
  assert.equal(preflight.headers.get("access-control-allow-origin"), origin);
  assert.match(preflight.headers.get("access-control-allow-methods"), /POST/);
  assert.match(preflight.headers.get("access-control-allow-headers").toLowerCase(), /authorization/);
  const answer = await server.get("/v1/models", { origin });
  assert.equal(answer.headers.get("access-control-allow-origin"), origin);
  await server.stop();

  const closed = await Server.start();
  assert.equal((await closed.get("/v1/models", { origin })).headers.get("access-control-allow-origin"), null);
  await closed.stop();
});

test("a web page in a browser on this host is no administrator", async () => {
  const server = await Server.start();
  assert.equal((await server.get("/caravan/v1/cache")).status, 200);
  assert.equal((await server.get("/caravan/v1/cache", { origin: "https://evil.example" })).status, 403);
  assert.equal((await server.get("/caravan/v1/cache", { "x-forwarded-for": "10.0.0.1" })).status, 403);
  await server.stop();
});

test("prompts and answers stay out of the log", async () => {
  const server = await Server.start(["--kv-debug"]);
  await server.post("/v1/chat/completions", { messages: [{ role: "system", content: shop }, { role: "user", content: "My name is Xaverius." }], max_tokens: 20 });
  assert.doesNotMatch(server.text(), /Xaverius|Mira|Northridge/);
  assert.ok(server.text().length > 0);
  await server.stop();
});
