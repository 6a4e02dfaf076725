/** A claim in the hands of a worker, and what it comes to. */

import { create } from "@bufbuild/protobuf";

import type { Claim } from "./claim.js";
import { ack, endingOf, fail, release, type ClaimName, type Ending, type Result } from "./ending.js";
import type { Progress } from "./gen/pawl/v1/task_pb.js";
import { ExtendRequestSchema, type ClaimedTask, type ExtendRequest } from "./gen/pawl/v1/worker_pb.js";
import type { Unreadable } from "./keyring.js";
import type { Logger } from "./log.js";
import { Cancelled, DeadLetter, Discard, Draining, Interrupted, LeaseLost, Outcome, Poison, Snooze, TimedOut } from "./outcome.js";
import type { Span } from "./telemetry.js";

/**
 * Where a claim is. lapsed: its handler runs; its lease has ended without confirmation, so that the token may or may not hold. lost: its
 * handler runs; the broker says that the claim is gone. ended: the broker has not confirmed its end.
 */
export type Phase = "running" | "lapsed" | "lost" | "ended";

/** What a handler came to. */
export type Verdict = { ok: true; result: Result } | { ok: false; error: unknown };

/** A claim from its push to the answer that ends it. Times are those of performance.now. */
export interface Held {
  readonly task: ClaimedTask;
  readonly name: ClaimName;
  readonly claim: Claim;
  readonly abort: AbortController;
  readonly lease: number;
  leaseEnd: number;
  /** running: of the next extension. ended: of the next try after a refusal, 0 if it was not refused. */
  due: number;
  /** Of the timeout; Infinity if there is none. */
  readonly deadline: number;
  phase: Phase;
  cause: Interrupted | undefined;
  ending: Ending | undefined;
  extended: number;
  progress: Progress | undefined;
  tries: number;
  isFallback: boolean;
  /** When the run ended, in milliseconds of the epoch. */
  ended: number;
  /** Of the run. */
  span: Span | undefined;
  /** Why the handler may not have the task. */
  readonly unreadable: Unreadable | undefined;
}

/** Says how a claim ends. A handler that returned, or threw an outcome, knows what it says, whatever it was told. */
export function endingFor(held: Held, verdict: Verdict): Ending {
  if (verdict.ok) return ack(held.name, verdict.result);
  const { error } = verdict;
  if (!(error instanceof Outcome)) {
    if (held.phase === "lapsed" || held.cause instanceof Draining) return release(held.name); // not the task's fault: no attempt is used
    if (held.cause instanceof TimedOut) return fail(held.name, isStop(error) ? held.cause : error, "timeout");
  }
  return endingOf(held.name, error);
}

/** Says what became of a run, in the words of docs/tracing.md, and whether it has failed. */
export function outcomeOf(held: Held, verdict: Verdict): { outcome: string; failed: boolean } {
  if (held.phase === "lost") return { outcome: held.cause instanceof Cancelled ? "cancelled" : "lease_lost", failed: false };
  if (verdict.ok) return { outcome: "succeeded", failed: false };
  const { error } = verdict;
  if (error instanceof Snooze) return { outcome: "snoozed", failed: false };
  if (error instanceof Discard) return { outcome: "discarded", failed: false };
  if (error instanceof DeadLetter) return { outcome: "dead", failed: true };
  if (error instanceof Poison) return { outcome: "poisoned", failed: true };
  if (held.phase === "lapsed") return { outcome: "lease_lost", failed: false };
  return held.cause instanceof Draining ? { outcome: "released", failed: false } : { outcome: "failed", failed: true };
}

function isStop(error: unknown): boolean {
  return error instanceof Interrupted || (error instanceof Error && error.name === "AbortError");
}

/** Tells a handler to stop, unless it was told already. */
export function interrupt(held: Held, cause: Interrupted): void {
  if (held.cause) return;
  held.cause = cause;
  held.abort.abort(cause);
}

/** Makes the request for an extension, with the newest progress. */
export function extension(held: Held, now: number): ExtendRequest {
  held.extended = now;
  const out = create(ExtendRequestSchema, held.name);
  if (held.task.lease) out.lease = held.task.lease;
  if (held.progress) out.progress = held.progress;
  held.progress = undefined;
  return out;
}

/** Says why a handler is to stop whose claim is gone. */
export function loss(reason: string): Interrupted {
  return reason === "cancelled" ? new Cancelled("the task was cancelled") : new LeaseLost(`the claim no longer holds: ${reason}`);
}

/** Names a task in the log. */
export function title(held: Held): string {
  return `task ${held.name.taskId} (${held.task.type}, attempt ${held.task.attempt})`;
}

/** Says in the log how a handler ended. phase is that in which it was. */
export function logEnd(log: Logger, held: Held, phase: Phase, verdict: Verdict): void {
  if (verdict.ok) return log.debug(`${title(held)}: succeeded`);
  const { error } = verdict;
  if (error instanceof Snooze || error instanceof Discard) log.info(`${title(held)}: ${error.name}: ${error.message}`);
  else if (phase === "running" && !(held.cause instanceof Draining || held.cause instanceof Cancelled)) log.warn(`${title(held)}: failed:`, error);
  else log.info(`${title(held)}: stopped: ${held.cause?.message ?? "its lease had ended"}`);
}
