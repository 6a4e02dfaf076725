/** Enqueues that run at the same time go together. */

import assert from "node:assert/strict";
import { setImmediate as turn } from "node:timers/promises";
import { test } from "node:test";

import { create } from "@bufbuild/protobuf";

import { Gatherer, maxBatchBytes, maxBatchTasks, type Outcome } from "../src/gather.js";
import { EnqueuedSchema } from "../src/gen/pawl/v1/producer_pb.js";
import { TaskSpecSchema } from "../src/gen/pawl/v1/task_pb.js";

/** A request that waits for what the test answers. */
interface Request {
  types: string[];
  answer: (refused?: Record<string, Error>) => void;
  fail: (err: Error) => void;
}

class Client {
  readonly requests: Request[] = [];
  readonly outcomes = new Map<string, Outcome>();
  readonly #gatherer = new Gatherer(
    (tasks) =>
      new Promise((resolve, reject) => {
        const types = tasks.map(({ type }) => type);
        const answer = (refused: Record<string, Error> = {}) =>
          resolve(types.map((type) => (refused[type] ? { error: refused[type] } : { answer: create(EnqueuedSchema, { taskId: `id-${type}` }) })));
        this.requests.push({ types, answer, fail: reject });
      }),
  );

  enqueue(type: string, size = 1, queue = ""): void {
    void this.#gatherer.enqueue(create(TaskSpecSchema, { type, queue }), size).then((outcome) => this.outcomes.set(type, outcome));
  }

  /** Enqueues each in a turn of its own. */
  async enqueueEach(...types: string[]): Promise<void> {
    for (const type of types) {
      this.enqueue(type);
      await turn();
    }
  }

  types(): string[][] {
    return this.requests.map(({ types }) => types);
  }

  id(type: string): string | undefined {
    const outcome = this.outcomes.get(type);
    return outcome && "answer" in outcome ? outcome.answer?.taskId : undefined;
  }
}

const names = (n: number) => Array.from({ length: n }, (_, at) => `t${at}`);

test("a lone task goes out at once, and so do those of one turn, together", async () => {
  const client = new Client();
  await client.enqueueEach("a");
  client.enqueue("b");
  client.enqueue("c");
  await turn();
  assert.deepEqual(client.types(), [["a"], ["b", "c"]]);
  client.requests.forEach(({ answer }) => answer());
  await turn();
  assert.deepEqual(["a", "b", "c"].map((type) => client.id(type)), ["id-a", "id-b", "id-c"]);
});

test("tasks that wait go together in their order, and each gets its own outcome", async () => {
  const client = new Client();
  await client.enqueueEach("first", "second", "a", "b", "c");
  assert.deepEqual(client.types(), [["first"], ["second"]]);
  client.requests[1]?.answer();
  await turn();
  assert.deepEqual(client.types()[2], ["a", "b", "c"]);
  const full = new Error("full");
  client.requests[2]?.answer({ b: full });
  await turn();
  assert.deepEqual(client.outcomes.get("b"), { error: full });
  assert.deepEqual([client.id("a"), client.id("c"), client.id("first")], ["id-a", "id-c", undefined]);
});

test("many that wait make more requests, up to a bound", async () => {
  const client = new Client();
  await client.enqueueEach("first", "second", ...names(15));
  assert.equal(client.requests.length, 2);
  await client.enqueueEach("last");
  assert.deepEqual(client.types()[2], [...names(15), "last"]);
  for (let n = 0; n < 10; n++) await client.enqueueEach(...names(16));
  assert.equal(client.requests.length, 8);
});

test("a request has at most so many tasks, and bytes", async () => {
  const client = new Client();
  names(maxBatchTasks + 1).forEach((type) => client.enqueue(type));
  await turn();
  assert.deepEqual(client.types().map(({ length }) => length), [maxBatchTasks, 1]);
  const large = new Client();
  large.enqueue("whole", maxBatchBytes + 1);
  large.enqueue("half", maxBatchBytes - 1);
  large.enqueue("one", 1);
  large.enqueue("too much", 1);
  await turn();
  assert.deepEqual(large.types(), [["whole"], ["half", "one"]]);
});

test("a failure is that of all in the request, and others go on", async () => {
  const client = new Client();
  await client.enqueueEach("first", "second", "a", "b");
  const lost = new Error("lost");
  client.requests[0]?.fail(lost);
  await turn();
  assert.deepEqual(client.outcomes.get("first"), { error: lost });
  client.requests[2]?.fail(lost);
  await turn();
  assert.deepEqual([client.outcomes.get("a"), client.outcomes.get("b")], [{ error: lost }, { error: lost }]);
  await client.enqueueEach("c");
  assert.deepEqual(client.types()[3], ["c"]);
});

test("each queue has requests of its own", async () => {
  const client = new Client();
  await client.enqueueEach("a", "b", "c"); // c waits
  client.enqueue("d", 1, "live");
  await turn();
  assert.deepEqual(client.types(), [["a"], ["b"], ["d"]]);
  client.requests[2]?.answer();
  await turn();
  client.enqueue("e", 1, "live");
  await turn();
  client.requests[0]?.answer();
  await turn();
  assert.deepEqual(client.types(), [["a"], ["b"], ["d"], ["e"], ["c"]]);
  assert.equal(client.id("d"), "id-d");
});

test("the limits hold for tasks that come while the last requests end", async () => {
  const client = new Client();
  await client.enqueueEach("a", "b");
  client.requests[0]?.answer();
  void Promise.resolve().then(() => queueMicrotask(() => client.enqueue("c"))); // both requests have ended then, but not all that follows
  client.requests[1]?.answer();
  await turn();
  await client.enqueueEach("d", "e");
  assert.deepEqual(client.types(), [["a"], ["b"], ["c"], ["d"]]);
});
