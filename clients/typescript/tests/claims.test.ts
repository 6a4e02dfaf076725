/** What the claims of a worker make of the broker's answers. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";

import { create, toBinary } from "@bufbuild/protobuf";

import { Claims } from "../src/claims.js";
import { ClaimedTaskSchema, FailOutcome, SettleResponseSchema, WorkHelloSchema, WorkRequestSchema } from "../src/gen/pawl/v1/worker_pb.js";
import { InvalidArgumentError } from "../src/errors.js";
import type { Held, Verdict } from "../src/held.js";
import type { Keeper, Lease, Report } from "../src/keeper.js";
import { Cancelled, LeaseLost, RetryIn } from "../src/outcome.js";
import type { Caller } from "../src/rpc.js";
import { eventually, silent } from "./world.js";

test("a refusal that overtakes an answer confirms no later lease", async (t) => {
  let held!: Held;
  const claims = new Claims({} as Caller, create(WorkHelloSchema), 1, silent, { start: (of) => void (held = of), ready: () => {}, flush: () => {}, calmer: () => {} });
  t.after(() => claims.close());
  const name = { taskId: "id-a", claimToken: "a" };
  const began = performance.now();
  claims.accept([create(ClaimedTaskSchema, { ...name, lease: { seconds: 30n } })], began);
  const extend = async (sent: number) => {
    held.extended = -Infinity; // progress is sent a second after the last extension, so at once
    held.claim.progress(50);
    await eventually(() => claims.nextFrame(sent)?.settle?.extends.length === 1);
  };
  await extend(began + 1);
  await extend(began + 2);
  claims.settled(create(SettleResponseSchema, { extends: [{ ...name, error: { code: "unavailable" } }] }), began);
  claims.settled(create(SettleResponseSchema, { extends: [name] }), began);
  assert.equal(held.leaseEnd, began + 1 + held.lease);
  await extend(began + 3);
  claims.settled(create(SettleResponseSchema, { extends: [name] }), began);
  assert.equal(held.leaseEnd, began + 3 + held.lease); // no time of a refused extension is left
  await extend(began + 4);
  claims.attach(performance.now());
  await eventually(() => claims.nextFrame(began + 5)?.settle?.extends.length === 1);
  claims.settled(create(SettleResponseSchema, { extends: [name] }), began);
  assert.equal(held.leaseEnd, began + 5 + held.lease); // nor one of an extension over an earlier stream
});

test("a lease that is not confirmed ends", async (t) => {
  let clock = 0;
  t.mock.method(performance, "now", () => clock);
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const pass = (milliseconds: number) => {
    clock += milliseconds;
    t.mock.timers.tick(milliseconds);
  };
  let held!: Held;
  const claims = new Claims({} as Caller, create(WorkHelloSchema), 1, silent, { start: (of) => void (held = of), ready: () => {}, flush: () => {}, calmer: () => {} });
  const name = { taskId: "id-a", claimToken: "a" };
  claims.accept([create(ClaimedTaskSchema, { ...name, lease: { seconds: 30n } })], clock);
  for (const code of ["unavailable", undefined]) { // the second extension has no answer
    pass(10_000);
    assert.deepEqual(claims.nextFrame(clock)?.settle?.extends.map((each) => each.claimToken), ["a"]);
    if (code) claims.settled(create(SettleResponseSchema, { extends: [{ ...name, error: { code } }] }), clock);
  }
  pass(9_999);
  assert.deepEqual([held.phase, held.leaseEnd], ["running", 30_000]);
  pass(1);
  assert.equal(held.phase, "running"); // until what has arrived is read
  pass(1);
  await turn();
  assert.equal(held.phase, "lapsed");
  assert(held.claim.signal.reason instanceof LeaseLost);
  claims.settled(create(SettleResponseSchema, { extends: [name] }), clock); // too late
  assert.deepEqual([held.phase, held.leaseEnd], ["lapsed", 30_000]);
  claims.attach(clock);
  pass(60_000);
  assert.deepEqual(claims.nextFrame(clock)?.settle?.extends ?? [], []);
  claims.finish(held, { ok: false, error: new Error("stopped") });
  assert.deepEqual(claims.nextFrame(clock)?.settle?.releases.map((each) => each.claimToken), ["a"]); // the broker may have kept the claim
  claims.close();
});

test("what a thread has heard while the event loop was blocked counts before leases are judged", (t) => {
  let clock = 1000;
  t.mock.method(performance, "now", () => clock);
  t.mock.method(process.hrtime, "bigint", () => BigInt((clock + 500) * 1e6)); // what threads share
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const started = new Map<string, Held>();
  const reports: Report[] = [];
  const kept: [string, number][] = [];
  const keeper = {
    hold: ({ claimToken, from }: Lease) => void kept.push([claimToken, from]),
    extended: (claimToken: string, at: number) => void kept.push([claimToken, at]),
    drop: (claimToken: string) => void kept.push([claimToken, -1]),
    reports: () => reports.splice(0),
    close: () => {},
  };
  const start = (of: Held) => void started.set(of.name.claimToken, of);
  const claims = new Claims({} as Caller, create(WorkHelloSchema), 3, silent, { start, ready: () => {}, flush: () => {}, calmer: () => {} });
  t.after(() => claims.close());
  claims.keeper = keeper as unknown as Keeper;
  claims.accept(["extended", "cancelled", "lost"].map((claimToken) => create(ClaimedTaskSchema, { taskId: "id", claimToken, lease: { seconds: 30n } })), clock);
  assert.deepEqual(kept.splice(0), [["extended", 1500], ["cancelled", 1500], ["lost", 1500]]);
  clock += 40_000; // the event loop is blocked
  reports.push({ claimToken: "extended", at: 16_500 }, { claimToken: "cancelled", lost: "cancelled" }, { claimToken: "lost", lost: "reclaimed" });
  t.mock.timers.tick(10_000);
  assert.deepEqual(kept, [["extended", 16_500], ["cancelled", -1], ["lost", -1]]);
  const { extended, cancelled, lost } = Object.fromEntries(started);
  assert.deepEqual([extended?.phase, extended?.leaseEnd], ["running", 46_000]);
  assert.deepEqual([cancelled?.phase, cancelled?.claim.signal.reason.constructor], ["lost", Cancelled]);
  assert.deepEqual([lost?.phase, lost?.claim.signal.reason.constructor], ["lost", LeaseLost]);
});

test("an outcome that cannot be sent fails its attempt and leaves the stream whole", (t) => {
  const started = new Map<string, Held>();
  const warnings: string[] = [];
  const log = { ...silent, warn: (message: string) => void warnings.push(message) };
  const start = (of: Held) => void started.set(of.name.claimToken, of);
  const claims = new Claims({} as Caller, create(WorkHelloSchema), 9, log, { start, ready: () => {}, flush: () => {}, calmer: () => {} });
  t.after(() => claims.close());
  const lying = new RetryIn(1);
  Object.defineProperty(lying, "delay", { get: () => assert.fail("its getter throws") });
  const ends: [string, Verdict, FailOutcome | undefined][] = [
    ["good", { ok: true, result: { data: Buffer.from("x"), contentType: "text/plain" } }, undefined],
    ["text", { ok: true, result: { data: "text" as never, contentType: "text/plain" } }, FailOutcome.RETRY],
    ["large", { ok: true, result: { data: Buffer.alloc(20 << 20), contentType: "text/plain" } }, FailOutcome.DEAD], // above gRPC's limit
    ["getter", { ok: false, error: lying }, FailOutcome.RETRY],
  ];
  claims.accept(ends.map(([claimToken]) => create(ClaimedTaskSchema, { taskId: "id", claimToken, lease: { seconds: 30n } })), performance.now());
  for (const [token, verdict] of ends) claims.finish(started.get(token)!, verdict);
  const frame = claims.nextFrame(performance.now())!;
  toBinary(WorkRequestSchema, frame);
  assert.deepEqual(frame.settle?.acks.map((each) => each.claimToken), ["good"]);
  assert.deepEqual(frame.settle?.fails.map((each) => [each.claimToken, each.outcome]), ends.filter((each) => each[2]).map(([token, , outcome]) => [token, outcome]));
  assert(frame.settle?.fails.every((each) => each.error?.message));
  assert.equal(warnings.length, 3);
  assert.equal(claims.busy, 0);
});

test("a raw result has bytes and the name of a type", (t) => {
  let held!: Held;
  const claims = new Claims({} as Caller, create(WorkHelloSchema), 1, silent, { start: (of) => void (held = of), ready: () => {}, flush: () => {}, calmer: () => {} });
  t.after(() => claims.close());
  claims.accept([create(ClaimedTaskSchema, { taskId: "id", claimToken: "a" })], performance.now());
  const refused = (field: string) => (err: unknown) => err instanceof InvalidArgumentError && err.field === field;
  assert.throws(() => held.claim.setRawResult("text" as never, "text/plain"), refused("result"));
  assert.throws(() => held.claim.setRawResult(new ArrayBuffer(1) as never, "text/plain"), refused("result"));
  assert.throws(() => held.claim.setRawResult(Buffer.from("x"), undefined as never), refused("content_type"));
  held.claim.setRawResult(Buffer.from("x"), "text/plain");
});

test("a confirmation that has arrived is read before a lease is declared to have ended, and an extension is sent at once", async (t) => {
  let clock = 0;
  t.mock.method(performance, "now", () => clock);
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const pass = (milliseconds: number) => {
    clock += milliseconds;
    t.mock.timers.tick(milliseconds);
  };
  let held!: Held;
  let sent = 0;
  const flush = () => void (sent += claims.nextFrame(clock)?.settle?.extends.length ?? 0);
  const claims = new Claims({} as Caller, create(WorkHelloSchema), 1, silent, { start: (of) => void (held = of), ready: () => {}, flush, calmer: () => {} });
  const name = { taskId: "id-a", claimToken: "a" };
  claims.accept([create(ClaimedTaskSchema, { ...name, lease: { seconds: 30n } })], clock);
  for (let blocks = 1; blocks <= 3; blocks++) {
    pass(18_000); // of a handler that blocks the event loop
    if (blocks > 1) {
      claims.settled(create(SettleResponseSchema, { extends: [name] }), clock); // read behind the sweep
      pass(1);
      await turn();
    }
    assert.deepEqual([held.phase, sent], ["running", blocks]);
  }
  claims.close();
});

test("blocks of six tenths of a lease lose none, even if a sweep that has yielded goes on after the next block", async (t) => {
  let clock = 0;
  t.mock.method(performance, "now", () => clock);
  t.mock.timers.enable({ apis: ["setTimeout"] });
  let held!: Held;
  let sent = 0;
  const flush = () => void (sent += claims.nextFrame(clock)?.settle?.extends.length ?? 0);
  const claims = new Claims({} as Caller, create(WorkHelloSchema), 1, silent, { start: (of) => void (held = of), ready: () => {}, flush, calmer: () => {} });
  t.after(() => claims.close());
  const name = { taskId: "id-a", claimToken: "a" };
  const block = (milliseconds: number) => {
    clock += milliseconds;
    t.mock.timers.tick(milliseconds);
  };
  const confirm = () => claims.settled(create(SettleResponseSchema, { extends: [name] }), clock);
  claims.accept([create(ClaimedTaskSchema, { ...name, lease: { seconds: 30n } })], clock);
  block(18_000);
  assert.equal(sent, 1);
  block(18_000); // the lease seems to have ended: the sweep yields
  assert.deepEqual([sent, held.phase], [1, "running"]);
  confirm();
  assert.deepEqual([sent, held.leaseEnd], [2, 48_000]); // at once, because another block may follow
  block(18_000); // the sweep would go on behind what the handler has set before
  confirm();
  assert.deepEqual([sent, held.leaseEnd], [3, 66_000]);
  clock += 18_000;
  await turn();
  assert.equal(held.phase, "running"); // the sweep had not yielded for this lease
  confirm();
  assert.deepEqual([sent, held.leaseEnd], [4, 84_000]);
  block(1);
  await turn();
  block(18_000); // this time, no confirmation comes
  block(1);
  await turn();
  assert.equal(held.phase, "lapsed");
});

test("a confirmation of one claim that is read while a sweep yields ends no lease of another", (t) => {
  let clock = 0;
  t.mock.method(performance, "now", () => clock);
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const held: Held[] = [];
  const claims = new Claims({} as Caller, create(WorkHelloSchema), 2, silent, { start: (of) => void held.push(of), ready: () => {}, flush: () => {}, calmer: () => {} });
  t.after(() => claims.close());
  const names = ["a", "b"].map((claimToken) => ({ taskId: claimToken, claimToken }));
  claims.accept(names.map((name) => create(ClaimedTaskSchema, { ...name, lease: { seconds: 30n } })), clock);
  t.mock.timers.tick((clock = 18_000));
  claims.nextFrame(clock);
  clock += 18_000;
  t.mock.timers.tick(18_000); // both leases seem to have ended: the sweep yields
  for (const name of names) claims.settled(create(SettleResponseSchema, { extends: [name] }), clock);
  assert.deepEqual(held.map((each) => [each.phase, each.leaseEnd]), [["running", 48_000], ["running", 48_000]]);
});

test("a handler does not begin whose claim was lost, or whose lease has ended", (t) => {
  const held = new Map<string, Held>();
  const start = (of: Held) => void held.set(of.name.claimToken, of);
  const claims = new Claims({} as Caller, create(WorkHelloSchema), 9, silent, { start, ready: () => {}, flush: () => {}, calmer: () => {} });
  t.after(() => claims.close());
  const began = performance.now();
  const tokens = ["ends", "lost", "cancelled", "lasts"];
  claims.accept(tokens.map((claimToken) => create(ClaimedTaskSchema, { taskId: claimToken, claimToken, lease: { seconds: 30n } })), began);
  claims.lose("lost", "expired");
  claims.lose("cancelled", "cancelled");
  held.get("lasts")!.leaseEnd++; // an extension was confirmed
  assert.deepEqual(tokens.filter((token) => claims.mayBegin(held.get(token)!, began + 29_999)), ["ends", "lasts"]);
  assert.deepEqual(tokens.filter((token) => claims.mayBegin(held.get(token)!, began + 30_000)), ["lasts"]);
  for (const each of held.values()) if (each.cause) claims.finish(each, { ok: false, error: each.cause });
  assert.deepEqual(claims.nextFrame(began)?.settle?.releases.map((each) => each.claimToken), ["ends"]); // it uses no attempt
});

test("a blocked event loop is logged, and named as the cause of what it has lost", async (t) => {
  let clock = 0;
  t.mock.method(performance, "now", () => clock);
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const warnings: string[] = [];
  const log = { ...silent, warn: (message: string) => void warnings.push(message) };
  const held = new Map<string, Held>();
  const start = (of: Held) => void held.set(of.name.claimToken, of);
  const claims = new Claims({} as Caller, create(WorkHelloSchema), 9, log, { start, ready: () => {}, flush: () => {}, calmer: () => {} });
  t.after(() => claims.close());
  const push = (...tokens: string[]) =>
    claims.accept(tokens.map((claimToken) => create(ClaimedTaskSchema, { taskId: claimToken, claimToken, lease: { seconds: 40n } })), clock);
  const block = (milliseconds: number) => {
    clock += milliseconds;
    t.mock.timers.tick(milliseconds);
  };
  const confirm = () => claims.settled(create(SettleResponseSchema, { extends: [...held.keys()].map((taskId) => ({ taskId, claimToken: taskId })) }), clock);
  const pass = (milliseconds: number) => {
    for (const end = clock + milliseconds; clock < end; confirm()) {
      block(Math.min(100, end - clock));
      claims.nextFrame(clock);
    }
  };
  push("a", "b", "c");
  pass(70_000);
  block(13_000); // before or after the sweep, it is late by less than a quarter of a lease
  pass(1000);
  assert.equal(warnings.join(), "");
  const late = claims.all[0]!.due - clock;
  block(late + 9_500);
  assert.equal(warnings.join(), "");
  pass(1000);
  block(claims.all[0]!.due - clock + 10_500);
  assert.match(warnings.join("\n"), /^the event loop was blocked for 10[5-7]\d\d ms or more, so leases of 40000 ms were not extended: .*worker_threads, or give/);
  claims.lose("a", "expired");
  claims.lose("b", "cancelled");
  assert.match(held.get("a")?.cause?.message ?? "", /^the claim is no longer valid: expired, since the event loop was blocked for 10[5-7]\d\d ms or more$/);
  assert.equal(held.get("b")?.cause?.message, "the task was cancelled");
  block(50_000);
  block(1);
  await turn();
  assert.equal(held.get("c")?.phase, "lapsed");
  assert.match(held.get("c")?.cause?.message ?? "", /without confirmation by the broker, since the event loop was blocked for \d+ ms or more$/);
  assert.equal(warnings.filter((each) => each.startsWith("the event loop")).length, 1); // one a minute
  push("d");
  pass(60_000);
  claims.lose("d", "expired");
  assert.equal(held.get("d")?.cause?.message, "the claim is no longer valid: expired");
});

test("a lease that seems to have ended holds up no extension of another", async (t) => {
  let clock = 0;
  t.mock.method(performance, "now", () => clock);
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const held = new Map<string, Held>();
  const sent: (string | undefined)[] = [];
  const flush = () => void sent.push(...(claims.nextFrame(clock)?.settle?.extends.map((each) => each.claimToken) ?? []));
  const start = (of: Held) => void held.set(of.name.claimToken, of);
  const claims = new Claims({} as Caller, create(WorkHelloSchema), 2, silent, { start, ready: () => {}, flush, calmer: () => {} });
  t.after(() => claims.close());
  claims.accept([create(ClaimedTaskSchema, { taskId: "id-a", claimToken: "a", lease: { seconds: 30n } })], clock);
  claims.accept([create(ClaimedTaskSchema, { taskId: "id-b", claimToken: "b", lease: { seconds: 60n } })], clock);
  clock += 40_000; // of a handler that blocks the event loop, and may do so again at once
  t.mock.timers.tick(40_000);
  assert.deepEqual([sent, held.get("a")?.phase, held.get("b")?.phase], [["b"], "running", "running"]);
  t.mock.timers.tick(1);
  await turn();
  assert.deepEqual([sent, held.get("a")?.phase, held.get("b")?.phase], [["b"], "lapsed", "running"]);
  claims.settled(create(SettleResponseSchema, { extends: [{ taskId: "id-b", claimToken: "b" }] }), clock);
  clock += 20_000; // the sweeps go on
  t.mock.timers.tick(20_000);
  assert.deepEqual(sent, ["b", "b"]);
});
