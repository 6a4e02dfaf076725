/** What the claims of a worker make of the broker's answers. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { create } from "@bufbuild/protobuf";

import { Claims } from "../src/claims.js";
import { ClaimedTaskSchema, SettleResponseSchema, WorkHelloSchema } from "../src/gen/pawl/v1/worker_pb.js";
import type { Held } from "../src/held.js";
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
