/** What the claims of a worker make of the broker's answers. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { create } from "@bufbuild/protobuf";

import { Claims } from "../src/claims.js";
import { ClaimedTaskSchema, SettleResponseSchema, WorkHelloSchema } from "../src/gen/pawl/v1/worker_pb.js";
import type { Held } from "../src/held.js";
import { LeaseLost } from "../src/outcome.js";
import type { Caller } from "../src/rpc.js";
import { eventually, silent } from "./world.js";

test("a refusal that overtakes an answer confirms no later lease", async (t) => {
  let held!: Held;
  const claims = new Claims({} as Caller, create(WorkHelloSchema), 1, silent, { start: (of) => void (held = of), ready: () => {}, calmer: () => {} });
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

test("a lease that is not confirmed ends", (t) => {
  let clock = 0;
  t.mock.method(performance, "now", () => clock);
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const pass = (milliseconds: number) => {
    clock += milliseconds;
    t.mock.timers.tick(milliseconds);
  };
  let held!: Held;
  const claims = new Claims({} as Caller, create(WorkHelloSchema), 1, silent, { start: (of) => void (held = of), ready: () => {}, calmer: () => {} });
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
