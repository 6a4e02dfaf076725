/** Plays test/conformance/outside/traces.json, whose format is described there in doc.go, against the claims of a worker, in fake time. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { mock, test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";

import { create, type MessageInitShape } from "@bufbuild/protobuf";

import { Claims } from "../src/claims.js";
import { duration } from "../src/convert.js";
import { ClaimedTaskSchema, QuietNoticeSchema, SettleResponseSchema, WorkHelloSchema, type WorkRequest } from "../src/gen/pawl/v1/worker_pb.js";
import type { Held, Verdict } from "../src/held.js";
import { Snooze } from "../src/outcome.js";
import type { Caller } from "../src/rpc.js";
import { silent } from "./world.js";

type Tokens = Partial<Record<"ack" | "fail" | "release" | "extend", string[]>>;

interface Step {
  at?: number;
  open?: boolean;
  break?: boolean;
  push?: string[];
  lease?: number;
  timeout?: number;
  answer?: Tokens & { code?: string; reason?: string; retry_after?: number };
  lost?: string[];
  reason?: string;
  quiet?: boolean;
  end?: Record<string, string>;
  progress?: string;
  drain?: boolean;
  stop?: boolean;
  abandon?: boolean;
  sends?: Tokens & { hello?: boolean; quiet?: boolean; grant?: number };
  holds?: Record<string, string>;
  stopped?: Record<string, string>;
  busy?: number;
}

const traces = JSON.parse(readFileSync(join(import.meta.dirname, "../../../../test/conformance/outside/traces.json"), "utf8")) as { name: string; slots: number; steps: Step[] }[];

/** Claims without a stream, whose handlers end when a trace says so. */
class Player {
  #clock = 0;
  #open = false;
  #sent: Required<NonNullable<Step["sends"]>> = none();
  readonly #started = new Map<string, Held>();
  readonly #claims: Claims;

  constructor(slots: number) {
    mock.method(performance, "now", () => this.#clock);
    mock.timers.enable({ apis: ["setTimeout"] });
    const collect = () => this.#collect();
    const start = (held: Held) => void this.#started.set(held.name.claimToken, held);
    this.#claims = new Claims({ connection: {} } as Caller, create(WorkHelloSchema), slots, silent, { start, ready: () => {}, flush: collect, calmer: () => {} });
  }

  close(): void {
    this.#claims.close();
    mock.reset();
  }

  async play(steps: Step[]): Promise<void> {
    for (const [i, step] of steps.entries()) {
      this.#sent = none();
      for (const at = (step.at ?? 0) * 1000; this.#clock < at; ) await this.#pass(Math.min(at - this.#clock, 10));
      this.#happens(step);
      await this.#pass(1);
      await this.#pass(1); // a sweep yields once before a lease ends
      this.#collect();
      this.#check(`step ${i}`, step);
    }
  }

  async #pass(milliseconds: number): Promise<void> {
    this.#clock += milliseconds;
    mock.timers.tick(milliseconds);
    await turn();
  }

  #collect(): void {
    for (let frame; this.#open && (frame = this.#claims.nextFrame(this.#clock)); ) this.#add(frame);
  }

  #add(frame: WorkRequest): void {
    const sent = this.#sent;
    sent.hello ||= frame.hello !== undefined;
    sent.quiet ||= frame.quiet;
    sent.grant += frame.grant;
    const tokens = (of: { claimToken: string }[] | undefined) => (of ?? []).map((each) => each.claimToken);
    sent.ack.push(...tokens(frame.settle?.acks));
    sent.fail.push(...tokens(frame.settle?.fails));
    sent.release.push(...tokens(frame.settle?.releases));
    sent.extend.push(...tokens(frame.settle?.extends));
  }

  #happens(step: Step): void {
    const claims = this.#claims;
    if (step.open) {
      this.#open = true;
      this.#add(claims.attach(this.#clock));
    } else if (step.break) this.#open = false;
    else if (step.push) {
      const lease = duration("lease", (step.lease ?? 30) * 1000);
      const task = { type: "t", queue: "q", attempt: 1, lease, ...(step.timeout && { timeout: duration("timeout", step.timeout * 1000) }) };
      claims.accept(step.push.map((claimToken) => create(ClaimedTaskSchema, { ...task, taskId: claimToken, claimToken })), this.#clock);
    } else if (step.answer) claims.settled(create(SettleResponseSchema, answer(step.answer)), this.#clock);
    else if (step.lost) for (const token of step.lost) claims.lose(token, step.reason ?? "");
    else if (step.quiet !== undefined) claims.setQuiet(create(QuietNoticeSchema, { quiet: step.quiet, version: 1n }));
    else if (step.end) for (const [token, how] of Object.entries(step.end)) this.#end(token, how);
    else if (step.progress) this.#started.get(step.progress)?.claim.progress(50);
    else if (step.drain) claims.drain();
    else if (step.stop) claims.interruptAll();
    else if (step.abandon) claims.abandon();
  }

  #end(token: string, how: string): void {
    const held = this.#started.get(token);
    assert(held, `${token} was not started`);
    const unreadable = Object.defineProperty(new Error(), "message", { get: () => assert.fail("its getter throws") });
    const ends: Record<string, Verdict> = {
      returns: { ok: true, result: { data: new Uint8Array(), contentType: "" } },
      "returns what cannot be sent": { ok: true, result: { data: "text" as never, contentType: "text/plain" } },
      fails: { ok: false, error: new Error("boom") },
      "fails without words": { ok: false, error: unreadable },
      snoozes: { ok: false, error: new Snooze(60_000) },
      stops: { ok: false, error: held.cause },
    };
    assert(ends[how], how);
    this.#claims.finish(held, ends[how]);
  }

  #check(at: string, step: Step): void {
    const sorted = ({ ack, fail, release, extend, ...rest }: Required<NonNullable<Step["sends"]>>) => ({ ...rest, ack: ack.sort(), fail: fail.sort(), release: release.sort(), extend: extend.sort() });
    assert.deepEqual(sorted(this.#sent), sorted({ ...none(), ...step.sends }), `${at} sends`);
    const held = this.#claims.all;
    const running = held.filter((each) => each.phase !== "ended" && each.cause);
    const named = (each: Held, value: string | undefined) => [each.name.claimToken, value];
    if (step.holds) assert.deepEqual(Object.fromEntries(held.map((each) => named(each, each.phase))), step.holds, `${at} holds`);
    if (step.stopped) assert.deepEqual(Object.fromEntries(running.map((each) => named(each, causes[each.cause?.name ?? ""]))), step.stopped, `${at} has stopped`);
    if (step.busy !== undefined) assert.equal(this.#claims.busy, step.busy, `${at} has busy slots`);
  }
}

const causes: Record<string, string> = { Cancelled: "cancelled", LeaseLost: "lease_lost", TimedOut: "timed_out", Draining: "draining" };

function none(): Required<NonNullable<Step["sends"]>> {
  return { hello: false, quiet: false, grant: 0, ack: [], fail: [], release: [], extend: [] };
}

function answer(a: NonNullable<Step["answer"]>): MessageInitShape<typeof SettleResponseSchema> {
  const error = a.code === undefined ? {} : { error: { code: a.code, reason: a.reason ?? "", retryAfter: duration("retry_after", (a.retry_after ?? 0) * 1000) } };
  const all = (tokens: string[] | undefined) => (tokens ?? []).map((claimToken) => ({ taskId: claimToken, claimToken, ...error }));
  return { acks: all(a.ack), fails: all(a.fail), releases: all(a.release), extends: all(a.extend) };
}

for (const { name, slots, steps } of traces) {
  test(`trace: ${name}`, async () => {
    const player = new Player(slots);
    try {
      await player.play(steps);
    } finally {
      player.close();
    }
  });
}
