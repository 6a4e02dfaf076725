import assert from "node:assert/strict";
import { test } from "node:test";

import * as pawl from "../src/index.js";
import { Kept } from "../src/kept.js";
import { gate, newQueue, working, world } from "./world.js";

const w = world();

test("a step runs once, and its result is there for the next attempt", async () => {
  const task = pawl.defineTask<null, unknown>("steps", { queue: newQueue(), retry: { initial: 0, max: 0 } });
  let charged = 0;
  let failed = 0;
  let kept: unknown;
  const handler = pawl.handle(task, async (_, claim) => {
    const charge = () => claim.step("charge", async () => ({ id: `ch_${++charged}`, big: "9" }));
    const [one, two] = await Promise.all([charge(), charge()]); // those of one name wait for each other
    assert.deepEqual(one, two);
    assert.deepEqual(claim.lastCheckpoint(), claim.attempt === 1 ? undefined : { page: 3 });
    await claim.checkpoint({ page: 3 });
    await assert.rejects(claim.step("", () => 1), { field: "name" });
    await claim.step("twice", () => {
      if (++failed === 1) throw new Error("down");
    });
    const { checkpoint } = await w.client.ref(claim.id).info();
    kept = JSON.parse(Buffer.from(checkpoint).toString());
    return one;
  });
  await working(w.client, [handler], { queues: task.options.queue! }, async () => {
    const ref = await w.client.enqueue(task, null);
    assert.deepEqual(await ref.result({ timeout: "20s" }), { id: "ch_1", big: "9" });
    const info = await ref.info();
    assert.deepEqual([charged, failed, info.attempts], [1, 2, 2]);
    assert.deepEqual(kept, { pawl_steps: { charge: { id: "ch_1", big: "9" }, twice: null }, checkpoint: { page: 3 } });
  });
});

test("what cannot be recorded makes a dead letter, what has not run a plain failure", async () => {
  const task = pawl.defineTask<string, unknown>("steps", { queue: newQueue(), maxAttempts: 1 });
  const handler = pawl.handle(task, (how, claim) => {
    if (how === "large checkpoint") return claim.checkpoint("x".repeat(65 << 10));
    if (how === "large once") return claim.once("k", () => "x".repeat(65 << 10));
    return claim.step("s", () => (how === "large" ? "x".repeat(65 << 10) : 1n));
  });
  await working(w.client, [handler], { queues: task.options.queue! }, async () => {
    for (const how of ["large", "bigint", "large once", "large checkpoint"]) {
      const info = await (await w.client.enqueue(task, how)).waitEnded({ timeout: "20s" });
      assert.match(info.attemptLog[0]!.error!.message, how === "large checkpoint" ? /at most 65536/ : /cannot be recorded/, how);
      assert.equal(info.attemptLog[0]!.outcome, how === "large checkpoint" ? "failed" : "dead");
    }
  });
});

test("a once key is had once among the tasks of a queue", async () => {
  const task = pawl.defineTask<string, unknown>("pay", { queue: newQueue(), retry: { initial: 0, max: 0 } });
  let paid = 0;
  const first = gate();
  const go = gate();
  const handler = pawl.handle(task, (how, claim) =>
    claim.once(
      "payment/7",
      async () => {
        first.open();
        await go.opened;
        if (how === "fails" && claim.attempt === 1) throw new Error("down");
        return { receipt: ++paid };
      },
      { ttl: "1h" },
    ),
  );
  await working(w.client, [handler], { queues: task.options.queue! }, async () => {
    const fails = await w.client.enqueue(task, "fails");
    await first.opened;
    const others = await w.client.enqueueMany(task, ["well", "well"]);
    go.open();
    for (const ref of [fails, ...others]) assert.deepEqual(await ref.result({ timeout: "30s" }), { receipt: 1 });
    assert.equal(paid, 1);
  });
});

test("what another task holds puts a task off", async () => {
  const task = pawl.defineTask<string, unknown>("pay", { queue: newQueue() });
  const began = gate();
  const go = gate();
  const held = gate<unknown>();
  const handler = pawl.handle(task, async (how, claim) => {
    const run = claim.once("k", async () => {
      began.open();
      await go.opened;
    });
    if (how === "second") await run.catch((err: unknown) => held.open(err));
    await run;
  });
  await working(w.client, [handler], { queues: task.options.queue!, lease: "1s" }, async () => {
    const first = await w.client.enqueue(task, "first");
    await began.opened;
    const second = await w.client.enqueue(task, "second");
    assert((await held.opened) instanceof pawl.OnceHeld);
    go.open();
    assert.equal((await first.waitEnded({ timeout: "20s" })).state, "succeeded");
    assert.equal((await second.waitEnded({ timeout: "20s" })).state, "succeeded");
    assert((await second.info()).snoozes > 0);
  });
});

test("a cancelled task cannot save, and says why", async () => {
  const task = pawl.defineTask<null>("t", { queue: newQueue() });
  const began = gate();
  const cancelled = gate();
  const told = gate<unknown>();
  const handler = pawl.handle(task, async (_, claim) => {
    began.open();
    await cancelled.opened;
    await claim.checkpoint(1).catch(told.open);
  });
  await working(w.client, [handler], { queues: task.options.queue! }, async () => {
    const ref = await w.client.enqueue(task, null);
    await began.opened;
    await ref.cancel();
    cancelled.open();
    assert((await told.opened) instanceof pawl.Cancelled);
  });
});

const bytes = (text: string) => Buffer.from(text);

test("what is kept survives its encoding, byte for byte", () => {
  const checkpoints = [
    "",
    "{}",
    "[1]",
    "no json",
    '{"checkpoint":1}',
    '{"pawl_steps":1}',
    '{"pawl_steps":[]}',
    '{"pawl_steps":{},"more":1}',
    '{"pawl_steps":{"a":1}}',
    '{ "pawl_steps" : { "a\\"}{" : {"b":[1,"]}"]} , "n" : 12345678901234567890 }, "checkpoint" : {"x":"\\\\"} }',
  ];
  for (const each of checkpoints) {
    const kept = Kept.of(bytes(each));
    const again = Kept.of(kept.encode());
    assert.deepEqual([Buffer.from(again.own).toString(), [...again.steps]], [Buffer.from(kept.own).toString(), [...kept.steps]], each);
    if (kept.steps.size === 0) assert.equal(Buffer.from(kept.own).toString(), each === '{"pawl_steps":{}}' ? "" : each);
  }
  const kept = Kept.of(bytes(checkpoints.at(-1)!));
  assert.deepEqual([...kept.steps], [
    ['a"}{', '{"b":[1,"]}"]}'],
    ["n", "12345678901234567890"], // no digit is lost
  ]);
  assert.equal(Buffer.from(kept.own).toString(), '{"x":"\\\\"}');
  // A handler's own that looks like a container, or encrypted.
  for (const each of ['{"pawl_steps":{"a":1}}', '{"pawl_steps":{}}', '{"pawl_encrypted":"mine"}']) {
    const encoded = Kept.of(bytes("")).withOwn(bytes(each)).encode();
    assert.equal(Buffer.from(encoded).toString(), `{"pawl_steps":{},"checkpoint":${each}}`);
    assert.equal(Buffer.from(Kept.of(encoded).own).toString(), each);
  }
  assert.equal(Buffer.from(new Kept(bytes('{"pawl_encrypted":1}')).encode()).toString(), '{"pawl_encrypted":1}');
  assert.throws(() => Kept.of(bytes("no json")).checkRoom(), { field: "checkpoint" });
  assert.throws(() => new Kept(new Uint8Array(65537)).encode(), { field: "checkpoint" });
});
