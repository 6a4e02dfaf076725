/** What a worker does when its stream breaks, and when the broker says no. */

import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";

import { FailOutcome } from "../src/gen/pawl/v1/worker_pb.js";
import { Client, defineTask, handle, LeaseLost, Snooze, UnavailableError, Worker, type Claim } from "../src/index.js";
import { ScriptedBroker, type Stream } from "./scripted.js";
import { eventually, gate, silent } from "./world.js";

let broker: ScriptedBroker;
let client: Client;
let worker: Worker;
let running: Promise<void>;
let claims: Claim[];
let go: ReturnType<typeof gate<unknown>>;

beforeEach(async () => {
  broker = await ScriptedBroker.start();
  client = new Client(broker.address);
  claims = [];
  go = gate<unknown>();
  const handler = handle(defineTask("t"), async (_, claim) => {
    claims.push(claim);
    const said = await go.opened;
    if (said instanceof Error) throw said;
    return said;
  });
  worker = new Worker(client, [handler], { queues: "q", concurrency: 3, logger: silent });
  running = worker.run();
});

afterEach(async () => {
  worker.stop();
  await running;
  client.close();
  broker.close();
});

/** Pushes a task into the first stream, and waits for its handler. */
async function begun(): Promise<Stream> {
  const stream = await broker.stream();
  const { hello, grant } = await stream.receive();
  assert.deepEqual([hello?.types, hello?.slots, grant], [["t"], 3, 3]);
  stream.push("a");
  await eventually(() => claims.length === 1);
  return stream;
}

test("a stream whose broker is slow is probed until the answer comes, and goes on", async (t) => {
  const delayed = globalThis.setTimeout;
  t.mock.method(globalThis, "setTimeout", (f: () => void, ms: number) => delayed(f, ms === 2000 ? 20 : ms)); // the pause between probes
  const stream = await begun();
  go.open("done");
  const settle = await stream.settles();
  await eventually(() => broker.probes >= 2);
  stream.send({}); // which is not the answer
  const before = broker.probes;
  await eventually(() => broker.probes >= before + 5);
  stream.answer(settle);
  await eventually(async () => {
    const seen = broker.probes;
    await sleep(200);
    return broker.probes === seen;
  });
  stream.push("b");
  assert.deepEqual((await stream.settles()).acks.map((each) => each.claimToken), ["b"]);
});

test("a broken stream costs a running handler nothing", async () => {
  const first = await begun();
  first.breakOff();
  const second = await broker.stream();
  assert.equal((await second.receive()).grant, 2); // one slot is taken
  const { extends: extended } = await second.settles();
  assert.deepEqual(extended.map((each) => each.claimToken), ["a"]); // which tells whether its lease still holds
  second.push("a"); // again: it runs already
  go.open("done");
  const settle = await second.settles();
  assert.equal(Buffer.from(settle.acks[0]!.result).toString(), '"done"');
  second.answer(settle);
  assert.equal(claims.length, 1);
  assert(!claims[0]!.signal.aborted);
});

test("an end without an answer is told again over the next stream, until it has one", async () => {
  const first = await begun();
  go.open("done");
  await first.settles();
  first.breakOff();
  const second = await broker.stream();
  const again = await second.settles();
  assert.equal(again.acks[0]?.claimToken, "a");
  second.answer(again, "unavailable");
  const third = await second.settles();
  assert.equal(third.acks[0]?.claimToken, "a");
  second.answer(third);
});

test("an end that comes too late is told to the handler", async () => {
  const stream = await begun();
  const [claim] = claims;
  go.open("done");
  const settle = await stream.settles();
  assert(!claim!.signal.aborted);
  stream.answer(settle, "stale_claim", "reclaimed");
  await eventually(() => claim!.signal.aborted);
  assert(claim!.signal.reason instanceof LeaseLost);
  assert.match(String(claim!.signal.reason), /reclaimed/);
});

test("a lost claim stops its handler, whose end is not told", async () => {
  const stream = await begun();
  stream.send({ lost: [{ taskId: "id-a", claimToken: "a", reason: "expired" }] });
  await eventually(() => claims[0]!.signal.reason instanceof LeaseLost);
  stream.push("b");
  await eventually(() => claims.length === 2);
  go.open("done");
  const settle = await stream.settles();
  assert.deepEqual(settle.acks.map((each) => each.claimToken), ["b"]);
  stream.answer(settle);
});

test("an extension that is refused as stale stops the handler", async () => {
  const first = await begun();
  first.breakOff();
  const second = await broker.stream();
  second.answer(await second.settles(), "stale_claim", "reclaimed");
  await eventually(() => claims[0]!.signal.reason instanceof LeaseLost);
  go.open("done");
});

test("an end that the broker cannot take is replaced", async () => {
  const stream = await begun();
  go.open(new Snooze("9999h", "later"));
  const settle = await stream.settles();
  assert.equal(settle.releases.length, 1);
  stream.answer(settle, "invalid_argument");
  const second = await stream.settles();
  assert.equal(second.fails[0]?.error?.type, "InvalidArgumentError");
  stream.answer(second);
});

test("a push beyond the slots is given back", async () => {
  const stream = await begun();
  stream.push("b", "c", "d");
  const settle = await stream.settles();
  assert.deepEqual(settle.releases.map((each) => each.claimToken), ["d"]);
  stream.answer(settle);
  go.open("done");
});

test("a quiet worker grants no slots until it is to take tasks again", async () => {
  const stream = await begun();
  stream.send({ quiet: { quiet: true, reason: "maintenance", version: 3n } });
  stream.breakOff();
  const second = await broker.stream();
  const { hello, grant } = await second.receive();
  assert.deepEqual([hello?.quietVersion, grant], [3n, 0]);
  second.send({ quiet: { quiet: false, version: 4n } });
  for (let frame = await second.receive(); frame.grant !== 2; ) frame = await second.receive();
  go.open("done");
});

test("ends that no stream confirms are told by a call when the worker stops", async () => {
  const stream = await begun();
  go.open("done");
  await stream.settles(); // and no answer
  worker.stop();
  const settle = await broker.settled.take();
  assert.equal(settle.acks[0]?.claimToken, "a");
  await running;
});

/** Stops the worker while its stream does not answer for a task. */
async function stoppedWithoutAnswers(): Promise<void> {
  const stream = await begun();
  go.open("done");
  await stream.settles();
  worker.stop();
}

test("what the last call cannot settle is told again", async () => {
  broker.settleRefusals = ["unavailable", "rate_limited", "internal"];
  await stoppedWithoutAnswers();
  for (let n = 0; n < 4; n++) assert.deepEqual((await broker.settled.take()).acks.map((each) => each.claimToken), ["a"]);
  await running;
});

test("a result that the last call refuses makes a dead letter", async () => {
  broker.settleRefusals = ["payload_too_large"];
  await stoppedWithoutAnswers();
  assert.equal((await broker.settled.take()).acks.length, 1);
  const { fails } = await broker.settled.take();
  assert.deepEqual(fails.map((each) => [each.claimToken, each.outcome]), [["a", FailOutcome.DEAD]]);
  await running;
});

test("what even the last calls do not settle is an error", async () => {
  broker.settleRefusals = Array<string>(1000).fill("unavailable");
  const ended = assert.rejects(running, (err) => err instanceof UnavailableError && /the outcomes of 1 tasks are unconfirmed/.test(err.message));
  await stoppedWithoutAnswers();
  await ended;
  running = Promise.resolve();
});

test("what every stream refuses is told by a call", async () => {
  const stream = await begun();
  go.open("done");
  stream.answer(await stream.settles(), "unavailable");
  worker.stop();
  void (async () => {
    for (;;) stream.answer(await stream.settles(), "unavailable");
  })();
  assert.deepEqual((await broker.settled.take()).acks.map((each) => each.claimToken), ["a"]);
  await running;
});

test("a broker that shuts down is left in good order", async () => {
  const stream = await begun();
  stream.send({ draining: true });
  const second = await broker.stream();
  assert(stream.ended);
  assert.equal((await second.receive()).grant, 2);
  go.open("done");
  second.answer(await second.settles());
});

test("endings wait only for their own shard", async () => {
  const stream = await broker.stream();
  await stream.receive();
  go.open("done");
  const frames = [];
  for (const token of ["a.1", "b.1"]) { // the shard does not answer, and has room for two frames
    stream.push(token);
    frames.push(await stream.settles());
    assert.deepEqual(frames.at(-1)!.acks.map((ack) => ack.claimToken), [token]);
  }
  stream.push("c.1");
  await eventually(() => claims.length === 3);
  for (const token of ["d.2", "e.2"]) {
    stream.push(token);
    const settle = await stream.settles();
    assert.deepEqual(settle.acks.map((ack) => ack.claimToken), [token]);
    stream.answer(settle);
  }
  stream.answer(frames[0]!);
  const last = await stream.settles();
  assert.deepEqual(last.acks.map((ack) => ack.claimToken), ["c.1"]);
  stream.answer(frames[1]!);
  stream.answer(last);
});
