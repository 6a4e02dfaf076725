/**
 * Real processes, and what kill -9 does to them: nothing that was enqueued is lost, and each task runs at least once. PAWL_KILLS has more of
 * them killed.
 */

import assert from "node:assert/strict";
import { spawn, spawnSync, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, test } from "node:test";
import { fileURLToPath } from "node:url";

import { Client, type Ref } from "../src/index.js";
import { Broker } from "../src/testing.js";
import { numbers, slow, steps, stray } from "./kill_tasks.js";
import { eventually } from "./world.js";

const cli = fileURLToPath(new URL("../src/cli.js", import.meta.url));
const tasks = fileURLToPath(new URL("kill_tasks.js", import.meta.url));

const kills = Number(process.env["PAWL_KILLS"] ?? 6); // of workers; of the broker half as many

let broker: Broker;
let client: Client;
let notes: string;
let started: ChildProcess[] = [];

beforeEach(async () => {
  broker = await Broker.start();
  client = new Client(broker.address);
  notes = join(mkdtempSync(join(tmpdir(), "pawl-notes-")), "notes");
});

afterEach(async () => {
  for (const child of started) child.kill("SIGKILL");
  started = [];
  client.close();
  await broker.close();
  rmSync(join(notes, ".."), { recursive: true });
});

function start(...args: string[]): ChildProcess {
  const child = spawn(process.execPath, [cli, tasks, "--log-level", "error", ...args], {
    env: { ...process.env, PAWL_SERVER: broker.address, NOTES: notes },
    stdio: ["ignore", "inherit", "inherit"],
  });
  started.push(child);
  return child;
}

async function exitOf(child: ChildProcess): Promise<number | NodeJS.Signals> {
  if (child.exitCode === null && child.signalCode === null) await once(child, "exit");
  return child.signalCode ?? child.exitCode!;
}

function lines(): string[] {
  return existsSync(notes) ? readFileSync(notes, "utf8").trim().split("\n") : [];
}

test("kills of workers and broker lose no task", async () => {
  const worker = () => start("--concurrency", "8", "--lease", "1s");
  const workers = [worker(), worker()];
  const refs: Ref<number>[] = [];
  for (let turn = 0; turn < kills; turn++) {
    refs.push(...(await client.enqueueMany(numbers, Array.from({ length: 300 }, (_, n) => refs.length + n))));
    await eventually(() => lines().length > 250 * turn); // some of them run right now
    workers[turn % 2]!.kill("SIGKILL");
    workers[turn % 2] = worker();
    if (turn % 2) {
      await broker.kill();
      await broker.start();
    }
  }
  const results = await Promise.all(refs.map((ref) => ref.result({ timeout: "60s" })));
  assert.deepEqual(results, [...Array(300 * kills).keys()]);
  assert.equal(new Set(lines()).size, 300 * kills);
  const infos = await Promise.all(refs.map((ref) => ref.info()));
  const outcomes = new Set(infos.flatMap((info) => info.attemptLog.map((attempt) => attempt.outcome)));
  assert(outcomes.has("lease_lost") || outcomes.has("leaderless")); // the kills did hit tasks
});

test("a kill behind a step does not repeat it", async () => {
  const first = start("--lease", "5s");
  const ref = await client.enqueue(steps, null);
  assert.equal(await exitOf(first), "SIGKILL");
  await broker.kill(); // what was recorded is on its disk
  await broker.start();
  start("--lease", "5s");
  assert.deepEqual(await ref.result({ timeout: "60s" }), ["one", "two"]);
  assert.deepEqual(lines(), ["one", "killed", "two"]);
});

test("SIGTERM drains", async () => {
  const worker = start("--concurrency", "1");
  const refs = await client.enqueueMany(slow, [1000, 1000]);
  await eventually(() => lines()[0] === "begins");
  worker.kill("SIGTERM");
  assert.equal(await exitOf(worker), 0);
  assert.deepEqual(lines(), ["begins", "ends"]);
  const states = await Promise.all(refs.map(async (ref) => (await ref.info()).state));
  assert.deepEqual(states.sort(), ["ready", "succeeded"]);
});

test("a second signal ends at once", async () => {
  const worker = start();
  await client.enqueue(slow, 60_000);
  await eventually(() => lines()[0] === "begins");
  const again = setInterval(() => worker.kill("SIGTERM"), 50);
  assert.equal(await exitOf(worker), "SIGTERM");
  clearInterval(again);
  assert.deepEqual(lines(), ["begins"]);
});

test("processes share the work, and are started again", async () => {
  const supervisor = start("--processes", "3", "--concurrency", "1", "--lease", "1s");
  const refs = await client.enqueueMany(slow, [400, 400, 400]);
  await Promise.all(refs.map((ref) => ref.result({ timeout: "60s" })));
  const workers = async () => {
    const out = [];
    for await (const each of client.admin.workers.list({ lost: false })) out.push(each.pid);
    return out.sort();
  };
  await eventually(async () => (await workers()).length === 3); // two may have done all of it before the third has begun
  const before = await workers();
  process.kill(before[0]!, "SIGKILL");
  await eventually(async () => {
    const now = await workers();
    return now.length === 3 && !now.includes(before[0]!);
  });
  supervisor.kill("SIGTERM");
  assert.equal(await exitOf(supervisor), 0);
  assert.deepEqual(await workers(), []);
});

test("processes drain when their supervisor is killed", async () => {
  const supervisor = start("--processes", "2", "--concurrency", "1");
  const [ref] = await client.enqueueMany(slow, [1000]);
  await eventually(() => lines()[0] === "begins");
  supervisor.kill("SIGKILL");
  await exitOf(supervisor);
  assert.equal(await ref!.result({ timeout: "60s" }), "done");
  const late = await client.enqueue(slow, 0);
  await eventually(async () => {
    for await (const _ of client.admin.workers.list({ lost: false })) return false;
    return true;
  });
  assert.equal((await late.info()).state, "ready");
});

test("a rejection that nobody handles ends a worker, which drains before", async () => {
  const worker = start();
  const ref = await client.enqueue(stray, null);
  assert.equal(await ref.result({ timeout: "60s" }), "done");
  assert.equal(await exitOf(worker), 1);
  assert.equal((await ref.info()).attempts, 1);
});

test("a broker that is away is waited for, and a repeated enqueue makes one task", async () => {
  await client.enqueue(numbers, 0);
  await broker.kill();
  const enqueued = client.enqueueMany(numbers, [1, 2, 3]);
  await broker.start();
  assert.equal(new Set((await enqueued).map((ref) => ref.id)).size, 3);
  const brief = new Client({ server: broker.address, retryFor: 100 });
  await broker.kill();
  await assert.rejects(brief.enqueue(numbers, 4), { code: "unavailable" });
  brief.close();
});

test("wrong use is said", () => {
  const uses: [string[], RegExp][] = [
    [[], /0 modules/],
    [["./nowhere.js"], /nowhere/],
    [[cli.replace("cli.js", "index.js")], /exports no handlers/],
    [[tasks, "--queues", "a=x"], /queues/],
    [[tasks, "--concurrency", "many"], /concurrency/],
    [[tasks, "--lease", "1"], /lease/],
    [[tasks, "--log-level", "loud"], /--log-level/],
    [[tasks, "--processes", "0"], /--processes/],
    [[tasks, "--processes", "2", "--concurrency", "0"], /concurrency/],
    [[tasks, "--unknown"], /unknown/],
  ];
  for (const [args, says] of uses) {
    const done = spawnSync(process.execPath, [cli, ...args], { encoding: "utf8" });
    assert.equal(done.status, 2, done.stderr);
    assert.match(done.stderr, says);
  }
  const help = spawnSync(process.execPath, [cli, "--help"], { encoding: "utf8" });
  assert.match(help.stdout, /^usage: pawl-worker/);
});
