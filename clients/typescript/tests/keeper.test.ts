/** The thread that keeps leases: what it is told, and what it reports. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import { MessagePort } from "node:worker_threads";

import { clock } from "../src/clock.js";
import { Connection } from "../src/connection.js";
import { WorkerService } from "../src/gen/pawl/v1/worker_pb.js";
import { defineTask } from "../src/index.js";
import { Keeper, type Order, type Report } from "../src/keeper.js";
import { Caller } from "../src/rpc.js";
import { eventually, newQueue, silent, world } from "./world.js";

const w = world();

test("the thread gets the token of a function again and again, soon after a failure", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const post = t.mock.method(MessagePort.prototype, "postMessage");
  const tokens = () => post.mock.calls.flatMap((call) => (call.arguments[0] as Order | undefined)?.token ?? []);
  let calls = 0;
  const token = () => {
    calls++;
    if (calls === 2) throw new Error("none now");
    return `token-${calls}`;
  };
  const keeper = new Keeper(new Connection({ server: "127.0.0.1:1", token }, {}), silent, () => {});
  t.after(() => keeper.close());
  const passed = [];
  for (const after of [0, 29_999, 1, 999, 1, 29_999, 1]) {
    t.mock.timers.tick(after);
    await turn();
    passed.push(tokens().length);
  }
  assert.deepEqual([passed, tokens()], [[1, 1, 1, 1, 2, 2, 3], ["token-1", "token-3", "token-4"]]);
  keeper.close();
  t.mock.timers.tick(60_000);
  await turn();
  assert.equal(calls, 4);
});

test("the thread reports that a lease was extended, and that its task was cancelled", async (t) => {
  const queue = newQueue();
  const ref = await w.client.enqueue(defineTask<null>("t", { queue }), null);
  const connection = new Connection({ server: w.broker.address }, {});
  const { tasks } = await new Caller(connection, 0).call(WorkerService.method.claim, { queues: [{ queue }], worker: "w", lease: { seconds: 30n } });
  const { taskId, claimToken } = tasks[0]!;
  const reports: Report[] = [];
  const keeper = new Keeper(connection, silent, () => reports.push(...keeper.reports()));
  t.after(() => {
    keeper.close();
    connection.close();
  });
  const hold = () => keeper.hold({ taskId, claimToken, length: 30_000, from: clock() - 15_000, until: Infinity }); // it is due
  hold();
  await eventually(() => reports.length > 0);
  await ref.cancel();
  hold();
  await eventually(() => reports.length > 1);
  assert.deepEqual(reports.map(({ claimToken: of, ...report }) => [of, "lost" in report ? report.lost : "extended"]), [[claimToken, "extended"], [claimToken, "cancelled"]]);
});
