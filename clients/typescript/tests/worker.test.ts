import assert from "node:assert/strict";
import { cpSync, rmSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";

import * as pawl from "../src/index.js";
import { Broker } from "../src/testing.js";
import { eventually, gate, newQueue, silent, working, world } from "./world.js";

const w = world();

test("handlers get arguments and give results", async () => {
  const queue = newQueue();
  const add = pawl.defineTask<{ a: number; b?: number }, number>("add", { queue });
  const nothing = pawl.defineTask<null, void>("nothing", { queue });
  const scale = pawl.defineTask<Uint8Array>("scale", { queue, contentType: "image/png" });
  const handlers = [
    pawl.handle(add, ({ a, b = 10 }) => a + b),
    pawl.handle(nothing, () => {}),
    pawl.handle(scale, (image, claim) => claim.setRawResult(image.toReversed(), "image/webp")),
  ];
  await working(w.client, handlers, { queues: [queue] }, async () => {
    assert.equal(await (await w.client.enqueue(add, { a: 1 })).result({ timeout: "10s" }), 11);
    assert.equal(await (await w.client.enqueue(add, { a: 1, b: 2 })).result(), 3);
    assert.equal((await (await w.client.enqueue(nothing, null)).waitEnded()).result.length, 0);
    const scaled = await w.client.enqueue(scale, new Uint8Array([1, 2]));
    const info = await scaled.waitEnded();
    assert.deepEqual([[...info.result], info.resultContentType], [[2, 1], "image/webp"]);
    await assert.rejects(scaled.result(), SyntaxError);
  });
});

test("tasks run side by side up to the concurrency", async () => {
  const queue = newQueue();
  const meet = pawl.defineTask<number>("meet", { queue });
  let now = 0;
  let most = 0;
  let there = gate();
  const handler = pawl.handle(meet, async () => {
    most = Math.max(most, ++now);
    if (now === 4) {
      there.open();
      there = gate();
    } else await there.opened;
    await sleep(5);
    now--;
  });
  await working(w.client, [handler], { queues: [queue], concurrency: 4 }, async () => {
    const refs = await w.client.enqueueMany(meet, Array(40).keys());
    for (const ref of refs.slice(0, 4)) assert.equal((await ref.waitEnded({ timeout: 120_000 })).state, "succeeded");
    assert.equal(most, 4);
    const waiting = setInterval(() => there.open(), 20); // the last of them may be fewer than four at a time
    for (const ref of refs) assert.equal((await ref.waitEnded({ timeout: 120_000 })).state, "succeeded");
    clearInterval(waiting);
  });
  assert.equal(most, 4);
});

test("a handler does not begin whose lease ended while another blocked the event loop", async () => {
  const queue = newQueue();
  const task = pawl.defineTask<number>("block", { queue });
  const began: number[] = [];
  const handler = pawl.handle(task, (of) => {
    began.push(of);
    if (began.length === 1) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1600);
  });
  const refs = await w.client.enqueueMany(task, [0, 1]);
  await working(w.client, [handler], { queues: [queue], concurrency: 2, lease: "1s" }, async () => {
    for (const ref of refs) assert.equal((await ref.waitEnded({ timeout: 120_000 })).state, "succeeded");
  });
  assert.equal(began.filter((of) => of !== began[0]).length, 1);
});

test("handlers that block the event loop for three leases keep them", async () => {
  const queue = newQueue();
  const task = pawl.defineTask<number>("block", { queue, maxAttempts: 1 });
  const began: number[] = [];
  const warnings: string[] = [];
  const handler = pawl.handle(task, (of) => {
    began.push(of);
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 3000);
  });
  const kept = gate();
  const logger = { ...silent, warn: (message: string) => void warnings.push(message), debug: (message: string) => message.includes("thread") && kept.open() };
  await working(w.client, [handler], { queues: [queue], concurrency: 2, lease: "1s", logger }, async () => {
    await kept.opened;
    const refs = await w.client.enqueueMany(task, [0, 1]); // the second one waits behind the first
    await eventually(() => began.length === 2);
    for (const ref of refs) {
      const { state, attempts } = await ref.waitEnded({ timeout: 120_000 });
      assert.deepEqual([state, attempts], ["succeeded", 1]);
    }
  });
  assert.deepEqual([began.sort(), warnings], [[0, 1], []]);
});

test("a worker without the module of its thread works, and says so once", async () => {
  const here = fileURLToPath(new URL("../", import.meta.url));
  cpSync(join(here, "src"), join(here, "bundled"), { recursive: true });
  rmSync(join(here, "bundled/keeper_thread.js"));
  const bundled = (await import(join(here, "bundled/index.js"))) as typeof pawl;
  const task = bundled.defineTask<null, number>("plain", { queue: newQueue() });
  const warnings: string[] = [];
  const logger = { ...silent, warn: (message: string) => void warnings.push(message) };
  const client = new bundled.Client(w.broker.address);
  const worker = new bundled.Worker(client, [bundled.handle(task, () => 7)], { queues: task.options.queue!, logger });
  const running = worker.run();
  assert.equal(await (await client.enqueue(task, null)).result({ timeout: "20s" }), 7);
  await eventually(() => warnings.length > 0);
  worker.stop();
  await running;
  client.close();
  assert.equal(warnings.length, 1);
  assert.match(warnings[0]!, /^no thread extends leases while handlers block the event loop: Cannot find module/);
});

test("a task that times out while the event loop is blocked is not kept", async () => {
  const queue = newQueue();
  const task = pawl.defineTask<null>("block", { queue, maxAttempts: 1, timeout: "1s" });
  const reasons: unknown[] = [];
  const handler = pawl.handle(task, async (_, claim) => {
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 3500);
    await sleep(200);
    reasons.push((claim.signal.reason as Error).name);
    claim.signal.throwIfAborted();
  });
  const ref = await w.client.enqueue(task, null);
  await working(w.client, [handler], { queues: [queue], concurrency: 1, lease: "1s" }, async () => {
    assert.equal((await ref.waitEnded({ timeout: 120_000 })).state, "dead");
    await eventually(() => reasons.length === 1);
  });
});

test("a thousand handlers run at once", async () => {
  const task = pawl.defineTask<number, number>("sleep", { queue: newQueue() });
  const all = gate();
  let started = 0;
  const handler = pawl.handle(task, async (n) => {
    if (++started === 1000) all.open();
    await all.opened;
    return n;
  });
  await working(w.client, [handler], { queues: task.options.queue!, concurrency: 1000 }, async () => {
    const refs = await w.client.enqueueMany(task, Array(1000).keys());
    assert.deepEqual(await Promise.all(refs.map((ref) => ref.result({ timeout: 120_000 }))), [...Array(1000).keys()]);
  });
});

class CardError extends Error {}

const snoozed = new Set<string>();
const ways: Record<string, { state: string; attempts: number; says: string; act: (claim: pawl.Claim) => unknown }> = {
  well: { state: "succeeded", attempts: 1, says: "", act: () => "well" },
  retry: { state: "succeeded", attempts: 2, says: "TypeError: not yet", act: (claim) => raise(claim.attempt === 1 && new TypeError("not yet")) },
  fail: { state: "dead", attempts: 2, says: "CardError: never", act: () => raise(new CardError("never")) },
  retryIn: { state: "succeeded", attempts: 2, says: "soon", act: (claim) => raise(claim.attempt === 1 && new pawl.RetryIn(10, "soon")) },
  dead: { state: "dead", attempts: 1, says: "RangeError: no use", act: () => raise(new pawl.DeadLetter("no use", { cause: new RangeError("disk") })) },
  discard: { state: "discarded", attempts: 1, says: "too late", act: () => raise(new pawl.Discard("too late")) },
  poison: { state: "poisoned", attempts: 1, says: "unreadable", act: () => raise(new pawl.Poison("unreadable")) },
  nothing: { state: "dead", attempts: 2, says: "undefined: undefined", act: () => Promise.reject(undefined) },
  text: { state: "dead", attempts: 2, says: "string: a text", act: () => Promise.reject("a text") },
  cycle: { state: "dead", attempts: 1, says: "cannot be kept", act: () => 1n },
  large: { state: "dead", attempts: 1, says: "payload_too_large", act: () => "x".repeat(2 << 20) },
  undescribed: { state: "dead", attempts: 2, says: "cannot be described", act: () => raise(undescribed()) },
  badDelay: { state: "dead", attempts: 2, says: "delay", act: () => raise(new pawl.Snooze("soon")) },
  snooze: {
    state: "succeeded",
    attempts: 1,
    says: "",
    act: (claim) => raise(!snoozed.has(claim.id) && snoozed.add(claim.id) && new pawl.Snooze(10)),
  },
};

function raise(err: unknown): string {
  if (err) throw err;
  return "done";
}

function undescribed(): Error {
  return Object.defineProperty(new Error(), "message", { get: () => raise(new Error("no text")) });
}

test("what handlers throw decides what becomes of tasks", async () => {
  const task = pawl.defineTask<string>("ways", { queue: newQueue(), maxAttempts: 2, retry: { initial: 0, max: 0 } });
  const handler = pawl.handle(task, (way, claim) => ways[way]!.act(claim));
  await working(w.client, [handler], { queues: task.options.queue! }, async () => {
    const refs = await w.client.enqueueMany(task, Object.keys(ways));
    for (const [n, [way, { state, attempts, says }]] of Object.entries(ways).entries()) {
      const info = await refs[n]!.waitEnded({ timeout: "20s" });
      const failure = info.attemptLog.findLast((attempt) => attempt.error)?.error;
      assert.deepEqual([way, info.state, info.attempts], [way, state, attempts]);
      assert(`${failure?.type}: ${failure?.message}`.includes(says), `${way}: ${failure?.type}: ${failure?.message}`);
      if (way === "dead") assert.match(failure!.stack, /DeadLetter: no use[^]*worker\.test[^]*Caused by: RangeError: disk/);
    }
  });
});

test("payloads that do not fit are poison", async () => {
  const queue = newQueue();
  const parse = (payload: unknown) => {
    if (typeof payload !== "string") throw new TypeError("want a string");
    return payload;
  };
  const fit = pawl.defineTask<string, string>("fit", { queue, parse });
  const loose = pawl.defineTask<unknown>("fit", { queue });
  const binary = pawl.defineTask<Uint8Array>("fit", { queue, contentType: "application/x" });
  await working(w.client, [pawl.handle(fit, (text) => text)], { queues: queue }, async () => {
    assert.equal(await (await w.client.enqueue(fit, "a")).result(), "a");
    for (const call of [loose.call(1), binary.call(new Uint8Array([1]))]) {
      const info = await (await w.client.enqueue(call)).waitEnded({ timeout: "10s" });
      assert.equal(info.state, "poisoned");
    }
  });
});

test("a payload that is encrypted is for others", async () => {
  const sealed = pawl.defineTask<Uint8Array>("sealed", { queue: newQueue(), contentType: "application/vnd.pawl.encrypted; key=k", maxAttempts: 1 });
  await working(w.client, [pawl.handle(sealed, () => "it runs")], { queues: sealed.options.queue! }, async () => {
    const info = await (await w.client.enqueue(sealed, new Uint8Array([1]))).waitEnded({ timeout: "10s" });
    assert.equal(info.state, "dead");
    assert.match(info.attemptLog[0]!.error!.message, /encrypted/);
  });
});

test("leases are extended while handlers run", async () => {
  const slow = pawl.defineTask<null, number>("slow", { queue: newQueue() });
  const handler = pawl.handle(slow, async (_, claim) => {
    await sleep(2500);
    claim.signal.throwIfAborted();
    return claim.attempt;
  });
  await working(w.client, [handler], { queues: slow.options.queue!, lease: "1s" }, async () => {
    assert.equal(await (await w.client.enqueue(slow, null)).result({ timeout: "20s" }), 1);
  });
});

test("progress is told while a handler runs", async () => {
  const far = pawl.defineTask<null>("far", { queue: newQueue() });
  const go = gate();
  const handler = pawl.handle(far, async (_, claim) => {
    claim.progress(41.5, "nearly\ud800");
    claim.progress(200, "half");
    await go.opened;
  });
  await working(w.client, [handler], { queues: far.options.queue! }, async () => {
    const ref = await w.client.enqueue(far, null);
    await eventually(async () => (await ref.info()).progress.message === "half");
    assert.equal((await ref.info()).progress.percent, 100);
    go.open();
    await ref.waitEnded({ timeout: "10s" });
  });
});

test("a cancelled handler is told", async () => {
  const loop = pawl.defineTask<null>("loop", { queue: newQueue() });
  const began = gate();
  const told = gate<unknown>();
  const handler = pawl.handle(loop, async (_, claim) => {
    began.open();
    await sleep(60_000, undefined, { signal: claim.signal }).catch(() => told.open(claim.signal.reason));
    claim.signal.throwIfAborted();
  });
  await working(w.client, [handler], { queues: loop.options.queue! }, async () => {
    const ref = await w.client.enqueue(loop, null);
    await began.opened;
    await ref.cancel("enough");
    assert(await told.opened instanceof pawl.Cancelled);
    assert.equal((await ref.waitEnded()).state, "cancelled");
  });
});

test("a handler whose time is over is told, and the attempt has failed unless it returns", async () => {
  const task = pawl.defineTask<string>("late", { queue: newQueue(), timeout: 1000, maxAttempts: 1 });
  const handler = pawl.handle(task, async (how, claim) => {
    await sleep(60_000, undefined, { signal: claim.signal }).catch((err: unknown) => {
      assert(claim.signal.reason instanceof pawl.TimedOut);
      if (how === "throws") throw err;
    });
  });
  await working(w.client, [handler], { queues: task.options.queue! }, async () => {
    const [throws, returns] = await w.client.enqueueMany(task, ["throws", "returns"]);
    const info = await throws!.waitEnded({ timeout: "20s" });
    assert.deepEqual([info.state, info.attemptLog[0]!.error!.type], ["dead", "timeout"]);
    assert.equal((await returns!.waitEnded({ timeout: "20s" })).state, "succeeded");
  });
});

test("a drain lets handlers finish, then tells the rest to stop and gives their tasks back", async () => {
  const task = pawl.defineTask<string>("drain", { queue: newQueue() });
  const began = { quick: gate(), slow: gate(), stubborn: gate() };
  const reasons: unknown[] = [];
  const never = gate();
  const handler = pawl.handle(task, async (how, claim) => {
    began[how as keyof typeof began].open();
    if (how === "quick") await sleep(100);
    else if (how === "stubborn") await never.opened;
    else await sleep(60_000, undefined, { signal: claim.signal }).finally(() => reasons.push(claim.signal.reason));
  });
  const worker = new pawl.Worker(w.client, [handler], { queues: task.options.queue!, drainTimeout: 300, logger: silent });
  const stop = new AbortController();
  const running = worker.run(stop.signal);
  const refs = await w.client.enqueueMany(task, Object.keys(began));
  await Promise.all(Object.values(began).map((each) => each.opened));
  stop.abort();
  await running;
  assert(reasons[0] instanceof pawl.Draining);
  const infos = await Promise.all(refs.map((ref) => ref.info()));
  assert.deepEqual(
    infos.map((info) => [info.state, info.failures, info.releases]),
    [
      ["succeeded", 0, 0],
      ["ready", 0, 1],
      ["ready", 0, 1],
    ],
  );
  never.open();
  await assert.rejects(worker.run(), /has already been run/);
});

test("queues have weights or an order", async () => {
  const [mail, rest] = [newQueue(), newQueue()];
  const task = pawl.defineTask<number>("t", {});
  await w.client.enqueueMany([...Array(20).keys()].flatMap((n) => [task.call(n, { queue: mail }), task.call(n, { queue: rest })]));
  const order: string[] = [];
  const handler = pawl.handle(task, (_, claim) => void order.push(claim.queue));
  await working(w.client, [handler], { queues: { [mail]: 3, [rest]: 1 }, concurrency: 1 }, () => eventually(() => order.length === 40));
  assert.equal(order.slice(0, 20).filter((queue) => queue === mail).length, 15);
});

test("a stream is reported open once there is a broker", async () => {
  const broker = await Broker.start();
  const client = new pawl.Client(broker.address);
  await broker.kill();
  const said: string[] = [];
  const note = (text: string) => void said.push(text);
  const logger = { debug() {}, info: note, warn: note, error: note };
  await working(client, [pawl.handle(pawl.defineTask("t"), () => {})], { logger }, async () => {
    await eventually(() => said.length >= 2);
    assert.ok(said.every((text) => text.startsWith("work stream broke")), said.join());
    await broker.start();
    await eventually(() => said.some((text) => text.startsWith("work stream open")));
  });
  client.close();
  await broker.close();
});

test("settings are checked before anything runs", () => {
  const handlers = [pawl.handle(pawl.defineTask("t"), () => {})];
  const bad: [pawl.WorkerOptions, string][] = [
    [{ concurrency: 0 }, "concurrency"],
    [{ concurrency: 1.5 }, "concurrency"],
    [{ lease: 999 }, "lease"],
    [{ lease: "13h" }, "lease"],
    [{ drainTimeout: -1 }, "drainTimeout"],
    [{ queues: [] }, "queues"],
    [{ queues: "a,a" }, "queues"],
    [{ queues: "a=b" }, "queues"],
    [{ queues: "a=1,b" }, "queues"],
    [{ queues: "" }, "queues"],
    [{ queues: { a: 1001 } }, "queues.a"],
    [{ maxBytes: 0 }, "max_bytes"],
    [{ name: "x".repeat(257) }, "name"],
  ];
  for (const [options, field] of bad) {
    const refused = (err: unknown) => err instanceof pawl.InvalidArgumentError && err.field === field;
    assert.throws(() => new pawl.Worker(w.client, handlers, options), refused, JSON.stringify(options));
  }
  assert.throws(() => new pawl.Worker(w.client, []), { field: "types" });
  assert.throws(() => new pawl.Worker(w.client, [...handlers, ...handlers]), { field: "types" });
});

test("a worker that the broker refuses ends with the refusal", async () => {
  const task = pawl.defineTask("t");
  await assert.rejects(new pawl.Worker(w.client, [pawl.handle(task, () => {})], { queues: ["no spaces"], logger: silent }).run(), pawl.InvalidArgumentError);
  const gone = new pawl.Client(w.broker.address);
  gone.close();
  await assert.rejects(new pawl.Worker(gone, [pawl.handle(task, () => {})], { logger: silent }).run(), pawl.ClientClosedError);
});

test("the signal handlers of terminated go with the workers that run with it", async () => {
  const listeners = () => [process.listenerCount("SIGTERM"), process.listenerCount("SIGINT")];
  const more = (n: number) => none.map((count) => count + n);
  const none = listeners();
  const client = new pawl.Client(w.broker.address);
  const handlers = [pawl.handle(pawl.defineTask("t"), () => {})];
  const [a, b] = [1, 2].map(() => new pawl.Worker(client, handlers, { queues: newQueue(), logger: silent })) as [pawl.Worker, pawl.Worker];
  const signal = pawl.terminated();
  assert.deepEqual(listeners(), more(1));
  const running = [a.run(signal), b.run(signal)] as const;
  a.stop();
  await running[0];
  assert.deepEqual(listeners(), more(1)); // for the other
  client.close();
  await assert.rejects(running[1], pawl.PawlError);
  assert.deepEqual(listeners(), none);
});
