/** What the stories of outside.test.ts do not tell of the operators' calls: settings go around as they are, and what is wrong is named. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { ConflictError, defineTask, InvalidArgumentError, NotFoundError, type QueueSettings } from "../src/index.js";
import { newQueue, world } from "./world.js";

const w = world();

const settings: QueueSettings = {
  weights: { high: 7, normal: 2, low: 1 },
  retry: { initial: 1500, factor: 3, max: 60_000, jitter: 0 },
  maxAttempts: 3,
  lease: 45_000,
  timeout: 10_000,
  retention: { succeeded: 60_000, discarded: 61_000, cancelled: 62_000, dead: 63_000, poisoned: 64_000 },
  maxLength: 1000,
  maxRunning: 7,
  rate: { limit: 10, period: 1000, burst: 20 },
  perKey: { maxRunning: 2, rate: { limit: 1, period: 2000, burst: 3 }, weight: 0 },
  keys: { vip: { maxRunning: 5, rate: { limit: 4, period: 1000, burst: 4 }, weight: 9 } },
  maxWait: 30_000,
  keyOrder: "",
  breaker: { off: false, failureRate: 40, window: 30_000, minAttempts: 10, hold: 5000, maxHold: 50_000, probes: 2 },
  breakers: { job: { off: true, failureRate: 0, window: 0, minAttempts: 0, hold: 0, maxHold: 0, probes: 0 } },
};

test("settings come back as they were put", async () => {
  const queue = newQueue();
  const put = await w.client.admin.queues.put(queue, settings);
  assert.deepEqual(put.settings, settings);
  const again = await w.client.admin.queues.put(queue, { ...put.settings, maxAttempts: 4 }, { ifVersion: put.version });
  assert.deepEqual(again.settings, { ...settings, maxAttempts: 4 });
  await assert.rejects(w.client.admin.queues.put(queue, settings, { ifVersion: put.version }), ConflictError);
});

test("rates are texts too", async () => {
  const queue = newQueue();
  const put = async (rate: string) => (await w.client.admin.queues.put(queue, { rate, keys: { vip: { rate } } })).settings;
  const seconds = { "50": 1, "50/s": 1, "50/m": 60, "1,000/h": 3600, "100/10s": 10, "10/1m": 60, "5 / 1d": 86_400 };
  for (const [text, period] of Object.entries(seconds)) {
    const limit = Number(text.split("/")[0]!.replace(",", ""));
    const want = { limit, period: period * 1000, burst: limit };
    const { rate, keys } = await put(text);
    assert.deepEqual([rate, keys?.["vip"]?.rate], [want, want]);
  }
  assert.equal((await put("none")).rate, undefined);
  const started = await w.client.admin.operations.start({ action: "cancel", filter: { queue }, rate: "30/m" });
  assert.equal(started.spec.rate, 0.5);
  for (const text of [" ", "abc", "/s", "5/", "5/0s", "0/s", "-1/s", "NaN", "Inf/s", "5/s/s", "5/week", "1_0/s", "1,0,00000000000000000/s"]) {
    const wants = (field: string) => (err: unknown) => err instanceof InvalidArgumentError && err.field === field && /is not a rate such as 50\/s, 30\/m, 1000\/h or 100\/10s/.test(err.message);
    await assert.rejects(put(text), wants("settings.rate"));
    await assert.rejects(w.client.admin.operations.start({ action: "cancel", filter: { queue }, rate: text }), wants("spec.rate"));
  }
  await assert.rejects(put("0.5/s"), /a limit is a whole number of tasks; use a longer period/);
});

test("what is wrong is named", async () => {
  const queue = newQueue();
  const wrong = { keyOrder: "random" } as unknown as QueueSettings;
  await assert.rejects(w.client.admin.queues.put(queue, wrong), (err) => err instanceof InvalidArgumentError && err.field === "settings.key_order");
  await assert.rejects(w.client.admin.queues.put(queue, { maxAttempt: 3 } as QueueSettings), /settings.maxAttempt: is not known/);
  assert.throws(() => w.client.admin.tasks.list({ states: "dead" as unknown as [] }), /filter.states: "dead" is not an array/);
  assert.throws(() => w.client.admin.tasks.list({ queue, type: "" }), /filter.type: is empty: leave it out/); // or it would select all types
  await assert.rejects(w.client.admin.queues.pause(queue, "", { key: "" }), /key: is empty: leave it out/);
  await assert.rejects(w.client.admin.queues.get(queue), NotFoundError);
  for (const name of ["", "x".repeat(257), "zoë", "a\nb"]) assert.throws(() => w.client.admin.withActor(name), /is not 1 to 256 characters/);
});

test("lists", async () => {
  const queue = newQueue();
  await w.client.enqueue(defineTask("job", { queue }), null);
  const names = [];
  for await (const each of w.client.admin.queues.list(queue)) names.push(each.queue);
  for await (const each of w.client.admin.tasks.list({ queue, states: ["ready"] })) names.push(each.type);
  assert.deepEqual(names, [queue, "job"]);
  await w.client.admin.queues.pause(queue, "why not", { type: "job" });
  await w.client.admin.queues.resume(queue, "", { type: "job" });
  assert.equal((await w.client.admin.operations.preview({ action: "discard", filter: { queue } })).matched, 1);
  assert.equal(await w.client.admin.queues.purge(queue), 1);
  await w.client.schedules.withActor("lena").put(queue, defineTask("job", { queue }).call(null), { every: 60_000 });
  assert.equal((await w.client.schedules.withActor("lena").pause(queue)).pause?.by, "lena");
  await w.client.schedules.delete(queue);
});
