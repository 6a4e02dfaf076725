import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { test } from "node:test";

import { BatchError, Client, ConflictError, decodePayload, defineTask, InvalidArgumentError, NotFoundError, Ref, TimeoutError } from "../src/index.js";
import { newQueue, world } from "./world.js";

const w = world();

test("a task is enqueued with all its options", async () => {
  const queue = newQueue();
  const welcome = defineTask<{ to: string }, string>("mail.welcome", { queue, priority: "high", tags: ["a"], headers: { one: "1" }, maxAttempts: 7 });
  const ref = await w.client.enqueue(welcome, { to: "a@example.com" }, { delay: "1h", key: "tenant-7", cost: 3, tags: ["b"], headers: { two: "2" } });
  assert.equal(ref.state, "scheduled");
  const info = await ref.info();
  assert.deepEqual(decodePayload(info), { to: "a@example.com" });
  assert.deepEqual(
    [info.type, info.queue, info.priority, info.key, info.cost, info.tags, info.headers, info.maxAttempts],
    ["mail.welcome", queue, "high", "tenant-7", 3, ["a", "b"], { one: "1", two: "2" }, 7],
  );
  assert.equal(info.runAt!.getTime() - info.createdAt!.getTime(), 3_600_000);
});

test("a repeat with a request id or an idempotency key gives the first task", async () => {
  const task = defineTask<number>("t", { queue: newQueue() });
  for (const options of [{ requestId: randomUUID() }, { idempotencyKey: "k" }]) {
    const first = await w.client.enqueue(task, 1, options);
    const second = await w.client.enqueue(task, 1, options);
    assert.deepEqual([first.duplicate, second.duplicate, second.id], [false, true, first.id]);
    await assert.rejects(w.client.enqueue(task, 2, options), ConflictError);
  }
});

test("a unique key lets the queue have one task", async () => {
  const task = defineTask<number>("t", { queue: newQueue(), unique: { key: "k", onConflict: "reject" } });
  await w.client.enqueue(task, 1);
  await assert.rejects(w.client.enqueue(task, 2), ConflictError);
});

test("bad input is refused before the call, with the field of the API", async () => {
  const task = defineTask<unknown>("t", { queue: newQueue() });
  const bad: [object, string][] = [
    [{ delay: "1 hour" }, "delay"],
    [{ delay: NaN }, "delay"],
    [{ runAt: new Date(NaN) }, "run_at"],
    [{ priority: "urgent" }, "priority"],
    [{ cost: 1.5 }, "cost"],
    [{ cost: 0 }, "cost"],
    [{ maxAttempts: 0 }, "max_attempts"],
    [{ idempotencyKey: "" }, "idempotency_key"],
    [{ requestId: "" }, "request_id"],
    [{ tags: "a" }, "tags"],
    [{ key: "\ud800" }, "key"],
    [{ unique: "" }, "unique"],
    [{ retry: { factor: "2" } }, "retry.factor"],
    [{ delay: 1, runAt: new Date() }, "run_at"],
  ];
  for (const [options, field] of bad) {
    await assert.rejects(
      w.client.enqueue(task, 1, options),
      (err: unknown) => err instanceof InvalidArgumentError && err.field === field && err.message.startsWith(`${field}: `),
    );
  }
  await assert.rejects(w.client.enqueue(task, 1n), InvalidArgumentError);
  await assert.rejects(w.client.enqueue(task, 1, { dealy: 1 } as object), TypeError);
  assert.throws(() => defineTask(""), InvalidArgumentError);
});

test("what the broker refuses has its code and field", async () => {
  const task = defineTask<number>("t", { queue: "no spaces" });
  await assert.rejects(w.client.enqueue(task, 1), (err: unknown) => err instanceof InvalidArgumentError && err.field === "queue" && err.code === "invalid_argument");
  await assert.rejects(w.client.ref("0000000000000000000000000A").info(), (err: unknown) => err instanceof NotFoundError || err instanceof InvalidArgumentError);
});

test("a batch beyond one request arrives in order", async () => {
  const task = defineTask<number>("t", { queue: newQueue() });
  const refs = await w.client.enqueueMany(
    task,
    Array.from({ length: 2500 }, (_, n) => n),
  );
  assert.equal(new Set(refs.map((ref) => ref.id)).size, 2500);
  for (const n of [0, 1000, 2499]) assert.equal(decodePayload(await refs[n]!.info()), n);
});

test("of a batch with a bad task the others are enqueued", async () => {
  const task = defineTask<number>("t", { queue: newQueue() });
  const calls = [task.call(1), task.call(2, { queue: "no spaces" }), task.call(3)];
  await assert.rejects(w.client.enqueueMany(calls), (err: unknown) => {
    assert(err instanceof BatchError);
    assert.equal(err.code, "invalid_argument");
    assert(err.results[0] instanceof Ref && err.results[1] instanceof InvalidArgumentError && err.results[2] instanceof Ref);
    return true;
  });
});

test("numbers and dates that JSON lacks are refused, and do not become null", async () => {
  const task = defineTask<unknown>("t");
  const bad = [NaN, [1, Infinity], { a: { b: -Infinity } }, [new Number(NaN)], { at: new Date("soon") }, { toJSON: () => [NaN] }];
  for (const args of bad) await assert.rejects(w.client.enqueue(task, args), InvalidArgumentError);
  for (const args of [null, [null, undefined], { a: null, b: "null" }, { a: null, at: new Date(0) }]) task.call(args);
});

test("waiting ends with its timeout, and with its signal", async () => {
  const ref = await w.client.enqueue(defineTask<number>("t", { queue: newQueue() }), 1);
  await assert.rejects(ref.result({ timeout: 50 }), TimeoutError);
  const stop = new AbortController();
  const waiting = ref.result({ signal: stop.signal });
  stop.abort(new Error("enough"));
  await assert.rejects(waiting, /enough/);
});

test("a cancelled task has ended", async () => {
  const ref = await w.client.enqueue(defineTask<number>("t", { queue: newQueue() }), 1);
  assert.equal((await ref.cancel("wrong")).state, "cancelled");
  await assert.rejects(ref.result(), /is cancelled/);
});

test("a payload that is not JSON travels as it is", async () => {
  const scale = defineTask<Uint8Array>("image.scale", { queue: newQueue(), contentType: "image/png" });
  const ref = await w.client.enqueue(scale, new Uint8Array([0xff, 0]));
  const info = await ref.info();
  assert.deepEqual([[...info.payload], info.contentType], [[0xff, 0], "image/png"]);
  await assert.rejects(w.client.enqueue(scale, "text" as unknown as Uint8Array), InvalidArgumentError);
});

test("calls of a closed client are refused, also those under way", async () => {
  const client = new Client(w.broker.address);
  const ref = await client.enqueue(defineTask<number>("t", { queue: newQueue() }), 1);
  const waiting = ref.waitEnded();
  setImmediate(() => client.close());
  await assert.rejects(waiting, { code: "client_closed" });
  await assert.rejects(ref.info(), { code: "client_closed" });
});

test("addresses are checked", () => {
  const bad = ["host:", "a b", "10.0.0.1", "host:99999", "https://a:1,b:2", "https://a", Array(33).fill("127.0.0.1").join(",")];
  for (const server of bad) assert.throws(() => new Client(server), InvalidArgumentError, server);
  for (const server of ["127.0.0.1", "[::1]:7295", "localhost:1,127.0.0.2", "unix:///tmp/x"]) new Client(server).close();
  new Client({ server: "10.0.0.1", plaintext: true }).close();
  assert.throws(() => new Client({ tls: { caFile: "/nowhere" } }), InvalidArgumentError);
  assert.throws(() => new Client({ tls: { certFile: "x" } }), InvalidArgumentError);
});
