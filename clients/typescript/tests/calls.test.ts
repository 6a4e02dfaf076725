/** The requests of calls, field by field, and how often each is made. No broker: each call gets the test's answer. */

import assert from "node:assert/strict";
import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test, type TestContext } from "node:test";

import { create } from "@bufbuild/protobuf";

import { Claim } from "../src/claim.js";
import { Connection, type ConnectionOptions } from "../src/connection.js";
import { InternalError, StaleClaimError, UnavailableError } from "../src/errors.js";
import { OnceState } from "../src/gen/pawl/v1/once_pb.js";
import { ClaimedTaskSchema } from "../src/gen/pawl/v1/worker_pb.js";
import { AccessService } from "../src/gen/pawl/v1/access_pb.js";
import { OPTION_NAMES, optionsOf, spec, type TaskOptions } from "../src/options.js";
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
