import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { test } from "node:test";

import * as pawl from "../src/index.js";
import { eventually, gate, newQueue, working, world } from "./world.js";

const w = world();

test("a chain takes results along", async () => {
  const queue = newQueue();
  const fetched = pawl.defineTask<string, { size: number }>("fetch", { queue });
  const resize = pawl.defineTask<number, number>("resize", { queue });
  const mail = pawl.defineTask<null, unknown>("mail", { queue });
  const handlers = [
    pawl.handle(fetched, (url) => ({ size: url.length })),
    pawl.handle(resize, (width, claim) => claim.parentResult<{ size: number }>().size + width),
    pawl.handle(mail, (_, claim) => claim.parentResult()),
  ];
  await working(w.client, handlers, { queues: queue }, async () => {
    const chain = fetched.call("abc").followedBy(resize.call(100).followedBy(mail.call(null)), mail.call(null, { delay: "1h" }));
    const ref = await w.client.enqueue(chain);
    assert.deepEqual(await ref.result({ timeout: "20s" }), { size: 3 });
    const [resized, later] = (await ref.info()).then;
    assert.deepEqual([resized!.state, resized!.type, later!.state, later!.type], ["created", "resize", "created", "mail"]);
    assert.equal(await w.client.ref(resized!.taskId).result({ timeout: "20s" }), 103);
    const [mailed] = (await w.client.ref(resized!.taskId).info()).then;
    assert.equal(await w.client.ref(mailed!.taskId).result({ timeout: "20s" }), 103);
    const info = await w.client.ref(later!.taskId).info();
    assert.deepEqual([info.state, info.parent?.taskId], ["scheduled", ref.id]);
    const alone = await (await w.client.enqueue(mail, null, { maxAttempts: 1 })).waitEnded({ timeout: "20s" });
    assert.match(alone.attemptLog[0]!.error!.message, /has no parent/);
  });
});

test("a chain that cannot be names where", async () => {
  const task = pawl.defineTask<null>("t", { queue: newQueue() });
  const call = task.call(null);
  const odd = call.with({ priority: "odd" as pawl.Priority });
  await assert.rejects(w.client.enqueue(call.followedBy(call, call.followedBy(odd))), { field: "then[1].then[0].priority" });
  await assert.rejects(w.client.enqueue(call.followedBy(call.with({ groupId: randomUUID() }))), { field: "then[0].group_id" }); // by the broker
  let deep: pawl.Call = call;
  for (let n = 0; n < 20; n++) deep = call.followedBy(deep);
  assert.equal((await w.client.enqueue(deep)).state, "ready");
  assert.throws(() => call.followedBy(deep), /21 tasks/);
});

test("a group counts, and enqueues what completes it", async () => {
  const queue = newQueue();
  const part = pawl.defineTask<number, number>("part", { queue, maxAttempts: 1 });
  const report = pawl.defineTask<null, Record<string, unknown>>("report", { queue });
  const handlers = [
    pawl.handle(part, (n) => {
      if (n === 3) throw new Error("three");
      return n * n;
    }),
    pawl.handle(report, async (_, claim) => {
      const out: Record<string, unknown> = {};
      const { group_id } = claim.parentResult<{ group_id: string }>();
      for await (const member of w.client.group(group_id).members()) {
        if (member.state === "succeeded") out[member.taskId] = pawl.decodeMemberResult(member);
      }
      return out;
    }),
  ];
  const followers = { onComplete: report.call(null), onSuccess: report.call(null), onDeath: report.call(null) };
  const group = await w.client.enqueueGroup([0, 1, 2, 3, 4].map((n) => part.call(n)), { name: "squares", ...followers });
  const refs = group.tasks.filter((made) => made instanceof pawl.Ref);
  assert.deepEqual([refs.length, group.duplicate], [5, false]);
  let info = await group.info();
  assert.deepEqual([info.name, info.state, info.open, info.counts.members, info.counts.pending], ["squares", "running", false, 5, 5]);
  assert.equal(info.onComplete?.state, "waiting");
  await working(w.client, handlers, { queues: queue }, async () => {
    info = await group.waitEnded({ timeout: "20s" });
    assert.equal(info.state, "complete");
    assert.deepEqual([info.counts.succeeded, info.counts.dead, info.counts.pending], [4, 1, 0]);
    await eventually(async () => (await group.info()).onComplete?.state === "created");
    info = await group.info();
    assert.deepEqual([info.onDeath?.state, info.onSuccess?.state], ["created", "dropped"]);
    const squares = Object.fromEntries([0, 1, 2, 4].map((n) => [refs[n]!.id, n * n]));
    assert.deepEqual(await w.client.ref(info.onComplete!.taskId).result({ timeout: "20s" }), squares);
  });
  await assert.rejects(group.cancel(), pawl.WrongStateError);
});

test("a group takes members until it is complete", async () => {
  const part = pawl.defineTask<number>("part", { queue: newQueue() });
  const request = { open: true, requestId: randomUUID() };
  const group = await w.client.enqueueGroup([part.call(0)], request);
  const again = await w.client.enqueueGroup([part.call(0)], request);
  assert.deepEqual([again.id, again.duplicate], [group.id, true]);
  const unique = { unique: { key: "k", onConflict: "reject" as const } };
  await assert.rejects(group.add([2, 3].map((n) => part.call(n, unique))), (err: unknown) => {
    assert(err instanceof pawl.BatchError && err.results[0] instanceof pawl.Ref && err.results[1] instanceof pawl.ConflictError);
    return true;
  });
  await assert.rejects(group.add([part.call(2), part.call(3, { timeout: -1 })]), { field: "tasks[1].timeout" });
  assert.equal((await group.info()).counts.members, 2);
  await working(w.client, [pawl.handle(part, () => {})], { queues: part.options.queue! }, async () => {
    await eventually(async () => (await group.info()).counts.succeeded === 2);
    for (const timeout of ["100ms", 0]) await assert.rejects(group.waitEnded({ timeout }), /has not ended after \d+ ms: 0 tasks are pending/);
    await assert.rejects(group.waitEnded({ signal: AbortSignal.abort(new RangeError("enough")) }), RangeError);
    assert.equal((await group.close()).open, false);
    assert.equal((await group.waitEnded()).state, "complete");
  });
  const other = await w.client.enqueueGroup([part.call(0, { delay: "1h" })], { retention: "2h" });
  assert.equal((await other.cancel("wrong file")).state, "cancelled");
});

test("a schedule is put, paused, triggered and removed", async () => {
  const name = newQueue();
  const report = pawl.defineTask<{ year: number }>("report", { queue: name, retry: { initial: "10s" } });
  const { schedules } = w.client;
  const daily = { cron: "30 2 * * *", timeZone: "Europe/Berlin", jitter: "1m", overlap: "skip", owner: "here" } as const;
  assert.equal((await schedules.put(name, report.call({ year: 1 }), { ...daily, dryRun: true })).change, "created");
  await assert.rejects(schedules.get(name), pawl.NotFoundError);
  const made = await schedules.put(name, report.call({ year: 1 }), daily);
  assert.deepEqual([made.change, made.before], ["created", undefined]);
  const { schedule } = made;
  assert.deepEqual([schedule.cron, schedule.timeZone, schedule.jitter, schedule.overlap, schedule.owner], ["30 2 * * *", "Europe/Berlin", 60_000, "skip", "here"]);
  assert.deepEqual(schedule.task.options.retry, { initial: 10_000, factor: 2, max: 1_800_000, jitter: 0.25 });
  assert.equal((await schedules.put(name, report.call({ year: 1 }), daily)).change, "unchanged");
  await assert.rejects(schedules.put(name, report.call({ year: 2 }), { every: "1h", createOnly: true }), pawl.ConflictError);
  await assert.rejects(schedules.put(name, report.call({ year: 2 }, { priority: "odd" as pawl.Priority }), daily), { field: "task.priority" });
  assert.equal((await schedules.put(name, report.call({ year: 2 }), { every: "1h", ifEtag: schedule.etag })).change, "updated");
  assert.equal((await schedules.pause(name, "holiday")).pause?.reason, "holiday");
  const ref = await schedules.trigger(name);
  assert.deepEqual(pawl.decodePayload(await ref.info()), { year: 2 });
  assert.equal((await schedules.resume(name)).pause, undefined);
  const ticks = [];
  for await (const tick of schedules.history(name)) ticks.push(tick);
  assert.equal(ticks[0]?.outcome, "triggered");
  const names = [];
  for await (const each of schedules.list()) names.push(each.name);
  assert(names.includes(name));
  await schedules.delete(name);
  await assert.rejects(schedules.delete(name), pawl.NotFoundError);
});

test("events come as they happen, and go on behind a cursor", async () => {
  const task = pawl.defineTask<number>("t", { queue: newQueue() });
  const filter = { queue: task.options.queue!, kinds: ["task.enqueued", "task.cancelled"] };
  const seen: pawl.PawlEvent[] = [];
  const stop = new AbortController();
  const watching = (async () => {
    for await (const event of w.client.events({ ...filter, signal: stop.signal })) if (event.kind !== "reset") seen.push(event);
  })();
  const bounded = (async () => {
    let n = 0;
    for await (const _ of w.client.within({ timeout: 1, signal: stop.signal }).events(filter)) n++;
    return n;
  })();
  await eventually(async () => {
    await w.client.enqueue(task, 0); // until the broker has taken the call
    return seen.length > 0;
  });
  const { cursor } = seen.at(-1)!;
  const ref = await w.client.enqueue(task, 1);
  await ref.cancel("enough");
  await eventually(() => seen.some((event) => event.taskId === ref.id && event.state === "cancelled"));
  stop.abort();
  await watching;
  assert.ok((await bounded) > 0);
  for await (const event of w.client.events({ ...filter, cursor })) {
    if (event.taskId === ref.id && event.kind === "task.cancelled") break; // missed by nobody who has the cursor
  }
  await assert.rejects(w.client.events({ kinds: ["no kind"] }).next(), pawl.InvalidArgumentError);
});

test("events go on after the broker was killed", async () => {
  const own = await (await import("../src/testing.js")).Broker.start();
  const client = new pawl.Client(own.address);
  const task = pawl.defineTask<number>("t");
  const told = gate();
  let before = 0;
  const stop = new AbortController();
  const watching = (async () => {
    for await (const event of client.events({ signal: stop.signal })) {
      if (event.type === "t") before++;
      if (event.type === "after") told.open();
    }
  })();
  await eventually(async () => (await client.enqueue(task, 1)) && before > 0);
  await own.kill();
  await own.start();
  const again = setInterval(() => void client.enqueue(pawl.defineTask<null>("after"), null).catch(() => {}), 100);
  await told.opened;
  clearInterval(again);
  stop.abort();
  await watching;
  client.close();
  await own.close();
});
