// What the end-to-end tests share: the real program on a free port, the real client, exact prompts, counters.
//
// Every server writes its log to build/e2e/; a test that fails names it. A server that dies on its own fails the test.
import { execFileSync, spawn } from "node:child_process";
import { closeSync, existsSync, mkdirSync, openSync, readFileSync, renameSync } from "node:fs";
import net from "node:net";
import path from "node:path";
import { fileURLToPath } from "node:url";
import OpenAI from "openai";

export const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "../..");
const program = process.env.CARAVAN_PROGRAM ?? path.join(root, "build/caravan");
const synthesizer = path.join(root, "build/caravan-synth-model");
const logs = path.join(root, "build/e2e");
const startTimeout = 120_000;

const running = new Set();
let started = 0;
process.on("exit", () => {
  for (const child of running) child.kill("SIGKILL");
});

export const sleep = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

// Waits until `condition` gives something truthy and returns it. The time is an upper bound, never a measurement.
export async function eventually(condition, what = "the condition", timeout = 30_000) {
  const end = Date.now() + timeout;
  for (;;) {
    const value = await condition();
    if (value) return value;
    if (Date.now() > end) throw new Error(`${what} did not come true within ${timeout} ms`);
    await sleep(25);
  }
}

// A model with random weights, written once for each set of flags.
export function synthesize(shape, ...flags) {
  const folder = path.join(root, "build/models");
  const file = path.join(folder, ["e2e", shape, ...flags].join("").replace(/[^\w.-]/g, "_") + ".gguf");
  if (!existsSync(file)) {
    mkdirSync(folder, { recursive: true });
    const unfinished = `${file}.${process.pid}`;
    execFileSync(synthesizer, ["--shape", shape, ...flags, "-o", unfinished], { stdio: "pipe" });
    renameSync(unfinished, file);
  }
  return file;
}

export class Server {
  // `flags` as on the command line. The demo model serves unless they name another.
  static async start(flags = [], { environment = {}, limits = "", key = "none" } = {}) {
    const server = new Server();
    server.key = key;
    mkdirSync(logs, { recursive: true });
    const name = path.basename(process.argv[1] ?? "e2e", ".mjs");
    server.log = path.join(logs, `${name}-${process.pid}-${++started}.log`);
    const log = openSync(server.log, "w");
    const words = [program, "serve", "--port", "0", ...flags];
    // `ulimit` is the shell's; exec keeps the process id.
    const [command, ...rest] = limits ? ["sh", "-c", `${limits} && exec "$@"`, "sh", ...words] : words;
    server.child = spawn(command, rest, { env: { ...process.env, ...environment }, stdio: ["ignore", "pipe", log] });
    closeSync(log);
    running.add(server.child);
    let output = "";
    server.exited = new Promise((resolve) =>
      server.child.on("exit", (code, signal) => {
        running.delete(server.child);
        resolve({ code, signal });
      }),
    );
    server.child.stdout.on("data", (data) => (output += data));
    const url = () => output.match(/^caravan: serving .* on (http\S+)$/m)?.[1];
    const end = await Promise.race([
      server.exited,
      eventually(url, "the line that says where the model serves", startTimeout).catch((error) => ({ error })),
    ]);
    if (typeof end !== "string") {
      const error = new Error(`the server did not start (${JSON.stringify(end)}); ${server.log}:\n${server.text()}`);
      throw Object.assign(error, { end, log: server.text() });
    }
    server.url = end;
    await eventually(async () => (await server.get("/health")).status === 200, "/health");
    return server;
  }

  text() {
    return readFileSync(this.log, "utf8");
  }

  client(options = {}) {
    return new OpenAI({ baseURL: this.url + "/v1", apiKey: this.key, maxRetries: 0, timeout: 120_000, ...options });
  }

  async #answer(response) {
    const text = await response.text();
    let body = text;
    try {
      body = JSON.parse(text);
    } catch {
      // Prometheus text, or an empty body.
    }
    return { status: response.status, headers: response.headers, body, text };
  }

  headers(more = {}) {
    return { authorization: `Bearer ${this.key}`, ...more };
  }

  async get(where, headers = {}) {
    return this.#answer(await fetch(this.url + where, { headers: this.headers(headers) }));
  }

  // `body`: an object, or the bytes to send as they are.
  async post(where, body, headers = {}) {
    const raw = typeof body === "string" || body instanceof Uint8Array;
    return this.#answer(
      await fetch(this.url + where, {
        method: "POST",
        body: raw ? body : JSON.stringify(body),
        headers: this.headers({ "content-type": "application/json", ...headers }),
      }),
    );
  }

  // A completion of exact prompt tokens; fails unless it is served.
  async complete(prompt, more = {}) {
    const answer = await this.post("/v1/completions", { prompt, max_tokens: 1, temperature: 0, ...more });
    if (answer.status !== 200) throw new Error(`completion: ${answer.status} ${answer.text}`);
    return answer.body;
  }

  // The parsed events of a stream, without `[DONE]`, and what ended it.
  async events(where, body) {
    const answer = await this.post(where, { ...body, stream: true });
    const lines = answer.text.split("\n\n").filter((part) => part.startsWith("data: "));
    const data = lines.map((line) => line.slice("data: ".length));
    const done = data.at(-1) === "[DONE]";
    return { status: answer.status, done, events: (done ? data.slice(0, -1) : data).map((each) => JSON.parse(each)) };
  }

  async cache() {
    return (await this.get("/caravan/v1/cache")).body.device;
  }

  // {name or name{labels}: value}
  async metrics() {
    const values = {};
    for (const line of (await this.get("/metrics")).text.split("\n")) {
      const match = line.match(/^([a-z][^ ]*(?:\{.*\})?) (\S+)$/);
      if (match) values[match[1]] = Number(match[2]);
    }
    return values;
  }

  // How much the counters rise while `work` runs.
  async rise(work) {
    const before = await this.metrics();
    const result = await work();
    const after = await this.metrics();
    return { result, rise: (name) => (after[name] ?? 0) - (before[name] ?? 0) };
  }

  // Waits until a counter has risen to `value`.
  async reaches(name, value, timeout = 30_000) {
    return eventually(async () => (await this.metrics())[name] >= value, `${name} >= ${value}`, timeout);
  }

  // Nothing is running, waiting, or held by a running request.
  async idle(timeout = 30_000) {
    await sleep(150); // gauges are published every now and then
    return eventually(
      async () => {
        const metrics = await this.metrics();
        return ["caravan_requests_running", "caravan_requests_waiting", "caravan_cells_live"].every(
          (name) => metrics[name] === 0,
        );
      },
      "an idle server",
      timeout,
    );
  }

  get alive() {
    return this.child.exitCode === null && this.child.signalCode === null;
  }

  // Ends the server; throws if it had died before, or dies of a signal now.
  async stop() {
    if (!this.alive) throw new Error(`the server died (${JSON.stringify(await this.exited)}); ${this.log}:\n${this.text()}`);
    this.child.kill("SIGTERM");
    const timer = setTimeout(() => this.child.kill("SIGKILL"), 60_000);
    const { code, signal } = await this.exited;
    clearTimeout(timer);
    if (code !== 0) throw new Error(`the server ended with ${code ?? signal}; ${this.log}:\n${this.text()}`);
  }
}

// What a server says that does not start: {code, signal, log}.
export async function refusal(flags, options = {}) {
  let server;
  try {
    server = await Server.start(flags, options);
  } catch (error) {
    return { ...error.end, log: error.log };
  }
  await server.stop();
  throw new Error(`the server started, with ${flags.join(" ")}`);
}

// `count` token ids, the same for the same seed; ordinary tokens only. Prompts of different seeds differ from the start.
export function tokens(count, seed = 1) {
  let state = (seed * 2654435761) >>> 0;
  return Array.from({ length: count }, () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return 300 + ((state >>> 8) % 1500);
  });
}

export const shop =
  "You are Mira, the support assistant of Northridge Outdoor. Items can be returned within 42 days. " +
  "A refund takes 5 working days. Shipping costs €4.90. Orders over €75 ship free.";
export const ask = (question, system = shop) => [
  { role: "system", content: system },
  { role: "user", content: question },
];

// An HTTP connection without a client library: for half-closed, reset and malformed traffic.
export function connect(server) {
  const { hostname, port } = new URL(server.url);
  const socket = net.connect({ host: hostname, port: Number(port), allowHalfOpen: true });
  socket.received = "";
  socket.on("data", (data) => (socket.received += data.toString("latin1")));
  socket.on("error", () => {}); // a reset is one of the answers
  return socket;
}

export function requestBytes(server, where, body) {
  const text = JSON.stringify(body);
  return (
    `POST ${where} HTTP/1.1\r\nHost: ${new URL(server.url).host}\r\nContent-Type: application/json\r\n` +
    `Content-Length: ${Buffer.byteLength(text)}\r\n\r\n${text}`
  );
}
