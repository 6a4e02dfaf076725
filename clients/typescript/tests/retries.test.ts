/** For how long calls are retried. */

import assert from "node:assert/strict";
import { test } from "node:test";

import type { Connection } from "../src/connection.js";
import { BatchError, Client, defineTask, IncompleteError, UnavailableError } from "../src/index.js";
import { Caller, pages } from "../src/rpc.js";

test("what is unavailable is retried as long as the client wants", async (t) => {
  let clock = 0;
  t.mock.method(performance, "now", () => clock);
  t.mock.method(Caller.prototype, "sleep", async (ms: number) => void (clock += ms));
  const task = defineTask<number>("t");
  const operations: Record<string, (client: Client) => Promise<unknown>> = {
    "a call": (client) => client.ref("x").info(),
    "an enqueue": (client) => client.enqueue(task, 1),
    "a batch": (client) => client.enqueueMany(task, [1, 2]),
  };
  for (const [limit, options] of [[30_000, {}], [45_000, { retryFor: "45s" }], [0, { retryFor: 0 }]] as const) {
    for (const [what, operation] of Object.entries(operations)) {
      for (const refused of what === "a call" ? ["whole"] : ["whole", "each task", "each task at first"]) {
        clock = 0;
        const ids = new Set<string>();
        t.mock.method(Caller.prototype, "once", async (_: unknown, request: { tasks?: { requestId: string }[] }) => {
          clock++;
          if (refused === "whole" || (refused === "each task at first" && clock > limit * 0.9)) throw new UnavailableError("no leader");
          ids.add(String(request.tasks?.map((each) => each.requestId)));
          return { results: request.tasks?.map(() => ({ error: { code: "unavailable" } })) };
        });
        const client = new Client({ server: "127.0.0.1:1", ...options });
        await assert.rejects(operation(client), (err) => {
          const errors = err instanceof BatchError ? err.results : [err];
          return errors.length > 0 && errors.every((each) => each instanceof UnavailableError);
        });
        client.close();
        assert.ok(clock >= limit && clock < limit + (limit ? 3000 : 100), `${what}, refused ${refused}: ${clock} of ${limit} ms`); // the last pause may take two seconds
        assert.ok(ids.size <= 1); // a retry creates no second task
      }
    }
  }
});

test("calls that a retry would not repeat are not retried: they may be done, or a part of them", async (t) => {
  t.mock.method(Caller.prototype, "sleep", async () => {});
  let tries = 0;
  t.mock.method(Caller.prototype, "once", async () => {
    if (++tries > 1) return { discarded: 1n };
    throw new UnavailableError("shard 2 did not answer in time");
  });
  const client = new Client("127.0.0.1:1");
  const { queues, tasks } = client.admin;
  const calls: (() => Promise<unknown>)[] = [
    () => queues.purge("q"),
    () => queues.delete("q"),
    () => queues.put("q", {}, { ifVersion: 7 }),
    () => tasks.retry("id"),
    () => tasks.runNow("id"),
    () => tasks.discard("id"),
  ];
  for (const call of calls) {
    tries = 0;
    await assert.rejects(call, UnavailableError);
    assert.equal(tries, 1, call.toString());
  }
  client.close();
});

test("a list that lacks something ends with an error, after all that there is", async () => {
  const missing = [{ node: "", shard: 3, reason: "has no leader" }, { node: "n1", shard: 0, reason: "is away" }];
  const answers: Record<string, { items: number[]; next: string; missing?: typeof missing }> = { "": { items: [1], next: "a", missing }, a: { items: [2], next: "", missing: [{ node: "", shard: 3, reason: "did not answer in time" }] } };
  const got: number[] = [];
  await assert.rejects(
    async () => {
      for await (const item of pages(async (cursor) => answers[cursor] as never)) got.push(item as number);
    },
    (err) => {
      assert.ok(err instanceof IncompleteError && err instanceof UnavailableError);
      assert.deepEqual(err.missing, missing);
      return err.message === "the list is incomplete: shard 3 has no leader, and 1 more";
    },
  );
  assert.deepEqual(got, [1, 2]);
});

test("the first retry after a lost connection is free", async (t) => {
  t.mock.method(performance, "now", () => 0);
  let slept = 0;
  t.mock.method(Caller.prototype, "sleep", async (ms: number) => void (slept = ms));
  const caller = new Caller({} as Connection, 0);
  const unavailable = (retryAfter: number, reason = "") => Object.assign(new UnavailableError("away"), { retryAfter, reason });
  for (let n = 0; n < 30; n++) await caller.pause(1, unavailable(0));
  for (const [attempt, err, free] of [
    [0, unavailable(0), true],
    [1, unavailable(0), false],
    [0, unavailable(1), false],
    [2, unavailable(1000, "node_not_ready"), true],
    [3, unavailable(1000, "node_not_ready"), false],
  ] as const) {
    await caller.pause(attempt, err);
    assert.equal(slept < 1000, free, `try ${attempt} after ${err.reason || "unavailable"}, ${err.retryAfter} ms`);
  }
});
