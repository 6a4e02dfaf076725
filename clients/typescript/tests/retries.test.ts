/** For how long calls are retried. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { BatchError, Client, defineTask, UnavailableError } from "../src/index.js";
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

test("a list that lacks something ends with an error, after all that there is", async () => {
  const missing = [{ node: "", shard: 3, reason: "has no leader" }, { node: "n1", shard: 0, reason: "is away" }];
  const answers: Record<string, { items: number[]; next: string; missing?: typeof missing }> = { "": { items: [1], next: "a", missing }, a: { items: [2], next: "", missing: [] } };
  const got: number[] = [];
  await assert.rejects(
    async () => {
      for await (const item of pages(async (cursor) => answers[cursor] as never)) got.push(item as number);
    },
    (err) => err instanceof UnavailableError && err.message === "the list is incomplete: shard 3 has no leader",
  );
  assert.deepEqual(got, [1, 2]);
});
