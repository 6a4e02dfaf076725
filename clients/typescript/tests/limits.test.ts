/** How long calls may take. */

import assert from "node:assert/strict";
import { getEventListeners, once } from "node:events";
import { createServer, type AddressInfo, type Socket } from "node:net";
import { test, type TestContext } from "node:test";
import { setImmediate as turn } from "node:timers/promises";

import { Client as Channel, status } from "@grpc/grpc-js";

import { milliseconds } from "../src/convert.js";
import { BatchError, Client, defineTask, InvalidArgumentError, TimeoutError, UnavailableError } from "../src/index.js";
import { Caller } from "../src/rpc.js";

/** Lets no call have an answer. Returns how long each attempt waited, by the clock that it stops. */
function unanswered(t: TestContext): { clock: number; attempts: number[] } {
  const out = { clock: 0, attempts: [] as number[] };
  t.mock.method(performance, "now", () => out.clock);
  t.mock.method(Date, "now", () => out.clock);
  t.mock.method(Caller.prototype, "sleep", async (ms: number, ...signals: (AbortSignal | undefined)[]) => {
    const signal = signals.find((each) => each);
    if (signal) return new Promise((_, reject) => signal.addEventListener("abort", reject)); // the limit of an enqueue, which its request does not reach here
    out.clock += ms;
  });
  t.mock.method(Channel.prototype, "makeUnaryRequest", (...args: unknown[]) => {
    const [{ deadline }, callback] = args.slice(-2) as [{ deadline: number }, (err: object) => void];
    assert(Number.isFinite(deadline));
    out.attempts.push(Math.round(deadline - out.clock));
    out.clock = deadline;
    queueMicrotask(() => callback(Object.assign(new Error("late"), { code: status.DEADLINE_EXCEEDED, details: "late" })));
    return { cancel() {} };
  });
  return out;
}

test("an attempt waits ten seconds for its answer, and longer if the server is asked to wait", async (t) => {
  const seen = unanswered(t);
  const client = new Client("127.0.0.1:1");
  const task = defineTask<number>("t");
  for (const call of [() => client.ref("id").info(), () => client.enqueue(task, 1), () => client.schedules.get("s")]) {
    seen.attempts = [];
    await assert.rejects(call, UnavailableError);
    assert.deepEqual(seen.attempts, [10_000, 10_000, 10_000], call.toString()); // in the 30 s of retryFor
  }
  seen.attempts = [];
  await assert.rejects(client.enqueueMany(task, [1, 2]), (err) => err instanceof BatchError && err.results.every((each) => each instanceof UnavailableError));
  assert.deepEqual(seen.attempts, [10_000, 10_000, 10_000]);
  for (const call of [() => client.admin.queues.purge("q"), () => client.schedules.delete("s")]) {
    seen.attempts = [];
    await assert.rejects(call, UnavailableError);
    assert.deepEqual(seen.attempts, [10_000], call.toString()); // which is not repeated
  }
  seen.attempts = [];
  await assert.rejects(client.ref("id").waitEnded(), UnavailableError);
  assert.deepEqual(seen.attempts, [40_000]);
  seen.attempts = [];
  await assert.rejects(client.admin.operations.get("id", { wait: "1m" }), UnavailableError);
  assert.deepEqual(seen.attempts, [70_000]);
  client.close();
});

test("a timeout ends a call with its retries, and is all the time of one that is not retried", async (t) => {
  const seen = unanswered(t);
  const client = new Client("127.0.0.1:1");
  const cases: [string, (of: Client) => Promise<unknown>, number[]][] = [
    ["2500ms", (of) => of.ref("id").info(), [2500]],
    ["2500ms", (of) => of.admin.withActor("lena").queues.get("q"), [2500]],
    ["2500ms", (of) => of.enqueueMany(defineTask<number>("t"), [1]), [2500]],
    ["2500ms", (of) => of.ref("id").waitEnded({ timeout: "1h" }), [2500]],
    ["20s", (of) => of.ref("id").info(), [10_000]],
    ["1m", (of) => of.admin.queues.purge("q"), [60_000]],
    ["1m", (of) => of.schedules.delete("s"), [60_000]],
  ];
  for (const [timeout, call, attempts] of cases) {
    seen.attempts = [];
    const began = seen.clock;
    await assert.rejects(call(client.within({ timeout })), (err) => (err instanceof BatchError ? err.results[0] : err) instanceof TimeoutError, call.toString());
    assert.deepEqual(seen.attempts.slice(0, 1), attempts, call.toString());
    assert.equal(Math.round(seen.clock - began), milliseconds("timeout", timeout), call.toString());
  }
  seen.attempts = [];
  const began = seen.clock;
  const many = client.within({ timeout: "15s" }).enqueueMany(defineTask<number>("t"), Array(2500).fill(1));
  await assert.rejects(many, (err) => err instanceof BatchError && err.results.every((each) => each instanceof TimeoutError));
  assert.deepEqual(seen.attempts.map((each) => Math.round(each / 1000)), [10, 5]); // for the first of three requests, and none after the deadline
  assert.equal(seen.clock - began, 15_000);
  for (const timeout of [0, -1]) assert.throws(() => client.within({ timeout }), InvalidArgumentError);
  client.close();
});

test("the limits of a client end calls to a server that accepts connections and never answers", async (t) => {
  const sockets: Socket[] = [];
  const server = createServer((socket) => void sockets.push(socket)).listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  const address = `127.0.0.1:${(server.address() as AddressInfo).port}`;
  const client = new Client(address);
  const tokenless = new Client({ server: address, token: () => new Promise(() => {}) });
  t.after(() => (client.close(), tokenless.close()));
  const task = defineTask<number>("t");
  const calls: ((of: Client) => Promise<unknown>)[] = [
    (of) => of.ref("id").info(),
    (of) => of.ref("id").waitEnded(),
    (of) => of.enqueue(task, 1),
    (of) => of.enqueueMany(task, [1]),
    (of) => of.admin.queues.purge("q"),
    (of) => of.schedules.get("s"),
  ];
  const any = t.mock.method(AbortSignal, "any"); // of which Node 20 keeps a part as long as the signals live
  const warnings: Error[] = [];
  const warn = (warning: Error) => void warnings.push(warning);
  process.on("warning", warn);
  t.after(() => process.off("warning", warn));
  await Promise.all(
    [client, tokenless].flatMap((each) => calls.map((call) => assert.rejects(call(each.within({ timeout: 50 })), (err) => (err instanceof BatchError ? err.results[0] : err) instanceof TimeoutError, call.toString()))),
  );
  const stop = new AbortController();
  const reason = new Error("the user has left");
  const limited = [client, tokenless].map((each) => each.within({ signal: stop.signal }));
  const ends = (of: Client) => calls.map((call) => assert.rejects(call(of), (err) => (err instanceof BatchError ? err.results[0] : err) === reason, call.toString()));
  const ended = limited.flatMap(ends);
  setImmediate(() => stop.abort(reason));
  await Promise.all(ended);
  await Promise.all(limited.flatMap(ends));
  await turn();
  assert.deepEqual(warnings, []); // not that many calls listen to one signal
  assert.deepEqual([any.mock.callCount(), getEventListeners(stop.signal, "abort").length], [0, 0]);
});
