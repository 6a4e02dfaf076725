/** Plays the stories of test/conformance/outside, which says how they are written, to the TypeScript SDK. */

import { randomUUID } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

import { Cancelled, Client, DeadLetter, Discard, Draining, PawlError, Poison, RetryIn, Snooze, TimedOut, type Claim, type Handler, type WorkerQueues } from "../src/index.js";
import { working } from "../src/testing.js";
import { calls, claimOf, refused, type JSONObject } from "./outside_calls.js";
import { gate, silent } from "./world.js";

const root = join(import.meta.dirname, "../../../../test/conformance/outside");
const timeout = 120_000;
const poll = 15;

export interface Step {
  do: string;
  with?: JSONObject;
  as?: string | string[];
  members?: string[];
  gives?: unknown;
  refused?: JSONObject;
  until?: boolean;
}

export interface Story {
  name: string;
  says: string;
  about: string[];
  steps: Step[];
}

/** A row of the table of what each SDK has. */
export interface Feature {
  id: string;
  typescript: string;
}

type Action = JSONObject & { last: boolean };

/** A story is not true of this SDK. */
export class Untrue extends Error {}

export function features(): Feature[] {
  return JSON.parse(readFileSync(join(root, "features.json"), "utf8")) as Feature[];
}

/** All stories, with "@" replaced by their names. */
export function stories(): Story[] {
  return readdirSync(join(root, "stories"))
    .sort()
    .flatMap((file) => JSON.parse(readFileSync(join(root, "stories", file), "utf8")) as Story[])
    .map((raw) => JSON.parse(JSON.stringify(raw).replaceAll("@", raw.name)) as Story);
}

/** Says which of a story's features the SDK does not have. */
export function lacks(story: Story): string | undefined {
  return features().find((feature) => story.about.includes(feature.id) && !feature.typescript)?.id;
}

/** Says where got is not what is wanted. */
export function differs(where: string, want: unknown, got: unknown): string | undefined {
  const wrong = `${where}: got ${JSON.stringify(got)?.slice(0, 500)}, want ${JSON.stringify(want)?.slice(0, 500)}`;
  if (Array.isArray(want)) {
    const have = Array.isArray(got) ? got : [];
    if (have.length !== want.length) return wrong;
    return want.map((each, at) => differs(`${where}[${at}]`, each, have[at])).find((diff) => diff);
  }
  if (isObject(want)) {
    if (Object.keys(want).length > 0 && !isObject(got)) return wrong;
    return Object.entries(want)
      .map(([name, value]) => differs(`${where}.${name}`, value, (got as JSONObject)[name]))
      .find((diff) => diff);
  }
  return want === got || (!want && !got) ? undefined : wrong;
}

function isObject(value: unknown): value is JSONObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** A story under way. */
export class Play {
  readonly #uuid = randomUUID();
  readonly #ids = new Map<string, string>();
  readonly #gates = new Map<string, ReturnType<typeof gate<string>>>();
  readonly #runs = new Map<string, number>();
  readonly #script = new Map<string, JSONObject[][]>();
  readonly #failed = gate<string>();
  #wrong: Error | undefined;
  #working: (() => Promise<void>)[] = [];

  constructor(readonly client: Client) {}

  /** Plays all steps. It throws Untrue where the story is not true. */
  async tell(story: Story): Promise<void> {
    try {
      for (const [at, step] of story.steps.entries()) {
        await this.#step(step).catch((err: unknown) => {
          if (!(err instanceof Untrue)) throw err;
          throw this.#wrong ?? new Untrue(`step ${at + 1}, ${step.do}: ${err.message}`);
        });
      }
    } finally {
      await this.#stop();
    }
    if (this.#wrong) throw this.#wrong;
    for (const [type, runs] of this.#script) {
      const ran = this.#runs.get(type) ?? 0;
      if (ran !== runs.length) throw new Untrue(`the handler of "${type}" ran ${ran} times, want ${runs.length}`);
    }
  }

  async #step(step: Step): Promise<void> {
    const given = this.#resolve(step.with ?? {}) as JSONObject;
    if (step.do === "worker") return this.#start(given);
    if (step.do === "stop") return this.#stop();
    if (step.do === "open") return this.#gate(String(given["gate"])).open("");
    if (step.do === "await") return this.#await(String(given["gate"]));
    for (const end = performance.now() + timeout; ; await sleep(poll)) {
      const { got, diff } = await this.#judge(step, given);
      if (!diff) return this.#bind(step, got);
      if (!step.until || performance.now() > end || this.#wrong) throw new Untrue(diff);
    }
  }

  async #judge(step: Step, given: JSONObject): Promise<{ got?: unknown; diff: string | undefined }> {
    const call = calls[step.do];
    if (!call) throw new Untrue(`no such call: ${step.do}`);
    try {
      const got = await call(this.client, given);
      if (step.refused) return { got, diff: `not refused, want ${JSON.stringify(step.refused)}: ${JSON.stringify(got)}` };
      return { got, diff: "gives" in step ? differs("answer", this.#resolve(step.gives), got) : undefined };
    } catch (err) {
      if (!(err instanceof PawlError)) throw err;
      return { diff: step.refused ? differs("refusal", this.#resolve(step.refused), refused(err)) : `refused: ${err.code}: ${err.message}` };
    }
  }

  /** Replaces names by what they stand for. */
  #resolve(value: unknown): unknown {
    if (Array.isArray(value)) return value.map((each) => this.#resolve(each));
    if (isObject(value)) return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, this.#resolve(each)]));
    if (typeof value !== "string") return value;
    if (value.startsWith("$")) return this.#ids.get(value.slice(1)) ?? value;
    const text = value.replace(/\$\{(.*?)\}/g, (whole, name: string) => this.#ids.get(name) ?? whole);
    return { "%uuid": this.#uuid, "%1MiB": "x".repeat(1 << 20) }[text] ?? text;
  }

  #bind(step: Step, got: unknown): void {
    const bind = (names: string[], of: unknown) => names.forEach((name, at) => this.#ids.set(name, String((of as JSONObject[])[at]?.["task_id"])));
    const answer = got as JSONObject;
    if (typeof step.as === "string") this.#ids.set(step.as, String(answer["task_id"] ?? answer["group_id"] ?? answer["operation_id"]));
    else if (step.as) bind(step.as, got);
    if (step.members) bind(step.members, answer["tasks"]);
  }

  #gate(name: string): ReturnType<typeof gate<string>> {
    let out = this.#gates.get(name);
    if (!out) this.#gates.set(name, (out = gate<string>()));
    return out;
  }

  async #await(name: string): Promise<void> {
    const over = new AbortController();
    const late = sleep(timeout, "late", { signal: over.signal }).catch(() => "late");
    const first = await Promise.race([this.#gate(name).opened, this.#failed.opened.then(() => "failed"), late]);
    over.abort();
    if (first) throw new Untrue(`the gate "${name}" was not opened: ${first}`);
  }

  #start(given: JSONObject): void {
    const handlers: Handler[] = [];
    for (const [type, runs] of Object.entries(given["handlers"] as JSONObject)) {
      this.#script.set(type, runs as JSONObject[][]);
      handlers.push({ type, run: (claim) => this.#handle(claim) });
    }
    const { name, concurrency = 4, drain_timeout: drainTimeout = "10s" } = given as { name?: string; concurrency?: number; drain_timeout?: string };
    const options = { queues: given["queues"] as WorkerQueues, concurrency, drainTimeout, logger: silent };
    this.#working.push(working(this.client, handlers, name === undefined ? options : { ...options, name }));
  }

  async #stop(): Promise<void> {
    await Promise.all(this.#working.splice(0).map((stop) => stop()));
  }

  // Handlers

  async #handle(claim: Claim): Promise<unknown> {
    const n = this.#runs.get(claim.type) ?? 0;
    this.#runs.set(claim.type, n + 1);
    try {
      const run = this.#resolve(this.#script.get(claim.type)?.[n]) as JSONObject[] | undefined;
      if (!run) throw new Untrue(`the handler of "${claim.type}" ran ${n + 1} times`);
      for (const action of run) {
        const done = await this.#act(claim, { ...action, last: action === run.at(-1) });
        if (done) return done.value;
      }
      return undefined;
    } catch (err) {
      if (!(err instanceof Untrue)) throw err;
      this.#wrong ??= new Untrue(`run ${n + 1} of "${claim.type}": ${err.message}`);
      this.#failed.open("");
      throw new DeadLetter(err.message);
    } finally {
      this.#gate(`${claim.type} ended`).open("");
    }
  }

  /** Does one thing. What the handler returns comes as value; what it throws is thrown. */
  async #act(claim: Claim, a: Action): Promise<{ value: unknown } | undefined> {
    if ("step" in a || "once" in a) await effect(claim, a);
    else if ("fails" in a) throw "retry_in" in a ? new RetryIn(a["retry_in"] as string, String(a["fails"])) : new Error(String(a["fails"]));
    else if ("dead" in a) throw new DeadLetter(String(a["dead"]));
    else if ("discards" in a) throw new Discard(String(a["discards"]));
    else if ("poisons" in a) throw new Poison(String(a["poisons"]));
    else if ("snoozes" in a) throw new Snooze(a["snoozes"] as string);
    else if ("returns" in a) return { value: returns(claim, a) };
    else if ("sees" in a) same("claim", a["sees"], claimOf(claim));
    else if ("parent" in a) same("parent", a["parent"], claim.parentResult());
    else if ("opens" in a) this.#gate(String(a["opens"])).open("");
    else if ("holds" in a) await this.#await(String(a["holds"]));
    else if ("progress" in a) claim.progress(Number(a["progress"]), String(a["message"] ?? ""));
    else if ("checkpoint" in a) await checkpoint(claim, a);
    else if ("last_checkpoint" in a) same("checkpoint", a["last_checkpoint"], claim.lastCheckpoint());
    else if ("interrupted" in a) await interrupted(claim, a);
    else throw new Untrue(`no such action: ${JSON.stringify(a)}`);
    return undefined;
  }
}

function same(what: string, want: unknown, got: unknown): void {
  const diff = differs(what, want, got);
  if (diff) throw new Untrue(diff);
}

function returns(claim: Claim, a: Action): unknown {
  if (!("content_type" in a)) return a["returns"];
  claim.setRawResult(Buffer.from(String(a["returns"]), "base64"), String(a["content_type"]));
  return undefined;
}

async function effect(claim: Claim, a: Action): Promise<void> {
  let ran = false;
  const fn = () => {
    ran = true;
    if ("fails" in a) throw new Error(String(a["fails"]));
    return a["runs"];
  };
  let got: unknown;
  try {
    got = await ("step" in a ? claim.step(String(a["step"]), fn) : claim.once(String(a["once"]), fn));
  } finally {
    if (ran !== ("runs" in a || "fails" in a)) throw new Untrue(`ran: ${ran}, action ${JSON.stringify(a)}`);
  }
  same("effect", a["gives"], got);
}

const whys: Record<string, new () => Error> = { cancelled: Cancelled, draining: Draining, timed_out: TimedOut };

function isWhy(want: unknown, got: unknown): void {
  const why = whys[String(want)];
  if (!why || !(got instanceof why)) throw new Untrue(`interrupted by ${String(got)}, want ${String(want)}`);
}

async function checkpoint(claim: Claim, a: Action): Promise<void> {
  if (!("interrupted" in a)) return claim.checkpoint(a["checkpoint"]);
  const refusal: unknown = await claim.checkpoint(a["checkpoint"]).then(
    () => undefined,
    (err: unknown) => err,
  );
  isWhy(a["interrupted"], refusal);
  throw refusal;
}

async function interrupted(claim: Claim, a: Action): Promise<void> {
  for (const end = performance.now() + timeout; !claim.signal.aborted; await sleep(poll)) {
    if (performance.now() > end) throw new Untrue("was not interrupted");
  }
  isWhy(a["interrupted"], claim.signal.reason);
  if (a.last) throw claim.signal.reason;
}
