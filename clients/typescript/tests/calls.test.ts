/** The requests of calls, field by field, and how often each is made. No broker: each call gets the test's answer. */

import assert from "node:assert/strict";
import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test, type TestContext } from "node:test";

import { create } from "@bufbuild/protobuf";

import { Claim } from "../src/claim.js";
import { Connection, type ConnectionOptions } from "../src/connection.js";
import { InternalError, InvalidArgumentError, StaleClaimError, UnavailableError } from "../src/errors.js";
import { OnceState } from "../src/gen/pawl/v1/once_pb.js";
import { ClaimedTaskSchema } from "../src/gen/pawl/v1/worker_pb.js";
import { AccessService } from "../src/gen/pawl/v1/access_pb.js";
import { OPTION_NAMES, optionsOf, spec, type TaskOptions } from "../src/options.js";
import { Client, defineTask, handle, Worker } from "../src/index.js";
import { Caller } from "../src/rpc.js";

/** Returns a caller that gives each call the next answer, or throws it, and the requests that were made. */
function scripted(t: TestContext, ...answers: unknown[]): { caller: Caller; requests: unknown[] } {
  const requests: unknown[] = [];
  t.mock.method(Caller.prototype, "once", async (_: unknown, request: unknown) => {
    requests.push(request);
    const answer = answers.shift();
    if (answer instanceof Error) throw answer;
    return answer;
  });
  return { caller: new Caller(new Connection({ server: "localhost" }, {}), 0), requests };
}

/** Returns a claim whose calls a caller makes. */
function claimOf(caller: Caller): Claim {
  const task = create(ClaimedTaskSchema, { taskId: "id", claimToken: "token", type: "t", lease: { seconds: 90n } });
  return new Claim(task, new AbortController().signal, { caller, setProgress: () => {}, extended: () => {}, lost: () => {} });
}

const name = { taskId: "id", claimToken: "token" };
const run = { state: OnceState.RUN };

test("a once key is begun and finished once", async (t) => {
  for (const [options, ttl] of [[{}, undefined], [{ ttl: "1h" }, 3600n]] as const) {
    const { caller, requests } = scripted(t, run, {});
    let ran = 0;
    assert.deepEqual(await claimOf(caller).once("k", () => [++ran], options), [1]);
    const [begin, finish] = requests as [object, { ttl?: { seconds: bigint; nanos: number } }];
    assert.deepEqual(begin, { ...name, key: "k" });
    assert.deepEqual({ ...finish, ttl: finish.ttl?.seconds }, { ...name, key: "k", result: Buffer.from("[1]"), ttl });
    assert.deepEqual([requests.length, ran], [2, 1]);
  }
});

test("a once key runs again only if it is known to be free", async (t) => {
  for (const [answer, again] of [
    [{}, true],
    [new StaleClaimError("gone"), true], // the end of the claim has released the key
    [new UnavailableError("no answer"), false],
    [new InternalError("?"), false],
  ] as const) {
    const { caller, requests } = scripted(t, run, answer, run, {});
    const claim = claimOf(caller);
    let ran = 0;
    const pay = () => claim.once("k", () => {
      if (++ran === 1) throw new Error("bank");
    });
    await assert.rejects(pay(), /bank/);
    assert.deepEqual(requests.slice(1), [{ ...name, key: "k" }]);
    if (again) await pay();
    else await assert.rejects(pay(), UnavailableError);
    assert.deepEqual([ran, requests.length], again ? [2, 4] : [1, 2]);
  }
});

test("a checkpoint extends the lease by its length", async (t) => {
  const { caller, requests } = scripted(t, {});
  await claimOf(caller).checkpoint(7);
  const [{ lease, checkpoint, ...rest }] = requests as [{ lease: { seconds: bigint }; checkpoint: Uint8Array }];
  assert.deepEqual([requests.length, lease.seconds, Buffer.from(checkpoint).toString(), rest], [1, 90n, "7", name]);
});

test("calls that succeed allow another repeat", async (t) => {
  const failures = Array.from({ length: 10 }, () => new UnavailableError("no leader"));
  const answers = [...failures, ...Array.from({ length: 10 }, () => ({})), new UnavailableError("no leader"), {}];
  scripted(t, ...answers);
  t.mock.method(performance, "now", () => 0);
  const pauses: number[] = [];
  t.mock.method(Caller.prototype, "sleep", async (ms: number) => void pauses.push(ms));
  const caller = new Caller(new Connection({ server: "localhost" }, {}), 1);
  while (pauses.length < 11) await caller.call(AccessService.method.whoAmI, {});
  assert.ok(pauses[10]! <= 20, `the last pause is ${pauses[10]} ms: it waits for the budget`);
});

test("each variable of the environment counts unless the program says otherwise", async () => {
  const file = join(mkdtempSync(join(tmpdir(), "pawl-")), "token");
  writeFileSync(file, "from-file\n");
  const server = "localhost:1";
  const rows: [string, string, (made: Connection) => unknown, unknown, ConnectionOptions][] = [
    ["PAWL_SERVER", server, (made) => made.server, new Connection({ server }, {}).server, { server: "localhost:2" }],
    ["PAWL_TOKEN", "t", async (made) => (await made.metadata()).get("authorization")[0], "Bearer t", { token: "other" }],
    ["PAWL_TOKEN_FILE", file, async (made) => (await made.metadata()).get("authorization")[0], "Bearer from-file", { token: "other" }],
    ["PAWL_NAMESPACE", "shop", async (made) => (await made.metadata()).get("pawl-namespace")[0], "shop", { namespace: "other" }],
  ];
  for (const [variable, value, shown, want, given] of rows) {
    assert.deepEqual(await shown(new Connection({}, { [variable]: value })), want, variable);
    for (const [options, environment] of [[given, { [variable]: value }], [{}, {}]] as const) {
      assert.notDeepEqual(await shown(new Connection(options, environment)), want, `${variable} beside ${Object.keys(options)}`);
    }
  }
  for (const variable of ["PAWL_TLS_CA", "PAWL_CLIENT_CERT", "PAWL_CLIENT_KEY"]) {
    assert.throws(() => new Connection({}, { [variable]: join(file, "none") }), { field: "tls" }, variable);
  }
});

test("each option of a task comes back", () => {
  const values: Required<TaskOptions> = {
    queue: "q", priority: "high", delay: 1000, runAt: new Date(7000), idempotencyKey: "i", idempotencyTtl: 2000, requestId: "r",
    maxAttempts: 3,
    retry: { initial: 1, factor: 3, max: 5, jitter: 0.5 }, timeout: 3000, expiresIn: 4000, retention: 5000, key: "k", cost: 7, tags: ["a"],
    headers: { h: "v" }, groupId: "g", unique: { key: "u", states: ["ready"], onConflict: "reject" },
  };
  for (const option of OPTION_NAMES) {
    const given = { [option]: values[option as keyof TaskOptions] };
    const oneTime = option === "requestId" || option === "groupId"; // of one enqueue, not of the task
    assert.deepEqual(optionsOf(spec("t", new Uint8Array(), "", given)), oneTime ? {} : given);
  }
});

test("options that nobody knows are refused where they are given, also in JavaScript, and Pawl's words are named", async () => {
  const client = new Client("127.0.0.1:1") as any;
  const task = defineTask("t") as any;
  const handlers = [handle(task, () => {})];
  const wrong: [() => unknown, RegExp][] = [
    [() => defineTask("t", { attempts: 3 } as any), /"attempts" is not an option of a task: use maxAttempts; it takes queue, /],
    [() => defineTask("t", { retry: { type: "exponential" } } as any), /"type" is not an option of retry: use factor/],
    [() => task.call(null, { retry: { delay: 1000 } }) && client.enqueue(task, null, { retry: { delay: 1 } }), /"delay" is not an option of retry: use initial/],
    [() => task.with({ unique: { keys: "a" } }) && client.enqueue(task, null, { unique: { keys: "a" } }), /"keys" is not an option of unique; it takes key/],
    [() => client.ref("a").result(1000), /want an object: \{ timeout: 1000 \}/],
    [() => client.ref("a").waitEnded({ ttl: 1000 }), /"ttl" is not an option of a wait: use timeout/],
    [() => client.within(5), /want an object: \{ timeout: 5 \}/],
    [() => client.group([task.call(null)]), /group takes the id of a group.*enqueueGroup creates one/],
    [() => client.enqueueGroup([{ name: "t" }]), /is not a call/],
    [() => client.enqueueGroup([task.call(null)], { toString: 1 }), /"toString" is not an option of a group; it takes name/],
    [() => client.enqueue("mail", {}), /enqueue takes a task and its arguments/],
    [() => client.schedules.put("daily", { cron: "@daily", task }), /put takes a name, a call and options/],
    [() => client.schedules.put("daily", task.call(null), { pattern: "@daily" }), /"pattern" is not an option of a schedule: use cron/],
    [() => new Client({ connection: {} } as any), /"connection" is not an option of a client: use server/],
    [() => new Client({ tls: { ca: "x" } } as any), /"ca" is not an option of tls; it takes caFile/],
    [() => new (Worker as any)("mail", async () => {}), /the first argument is "mail", not a Client: want new Worker\(client, /],
    [() => new Worker(client, (async () => {}) as any), /the second argument is .*, not a list of handlers: want new Worker\(client, /],
    [() => new Worker(client, handlers, { queue: "mail" } as any), /"queue" is not an option of a worker: use queues/],
    [() => new Worker(client, handlers, { limiter: { max: 1 } } as any), /"limiter" is not an option of a worker: it is a setting of the queue/],
  ];
  for (const [attempt, message] of wrong) await assert.rejects(async () => attempt(), { name: "TypeError", message });
  client.close();
});

test("wrong values are refused where a task is defined", () => {
  const wrong: [object, string][] = [
    [{ priority: 1 }, "priority"],
    [{ unique: "" }, "unique"],
    [{ retry: { initial: "soon" } }, "retry.initial"],
    [{ timeout: "1 hour" }, "timeout"],
    [{ queue: 7 }, "queue"],
    [{ maxAttempts: 0 }, "max_attempts"],
  ];
  for (const [options, field] of wrong) assert.throws(() => defineTask("t", options), (err: unknown) => err instanceof InvalidArgumentError && err.field === field, field);
});
