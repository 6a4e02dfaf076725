/** A claim held by a worker, and how it ends. */

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
 * The phase of a claim. lapsed: its handler runs; its lease has expired unconfirmed, so the token may no longer be valid. lost: its handler
 * runs; the broker reported the claim lost. ended: its handler has ended; the broker has not confirmed it.
 */
export type Phase = "running" | "lapsed" | "lost" | "ended";

/** How a handler ended. */
export type Verdict = { ok: true; result: Result } | { ok: false; error: unknown };

/** A claim, from its push to the response that ends it. Times are those of performance.now. */
export interface Held {
  readonly task: ClaimedTask;
  readonly name: ClaimName;
  readonly claim: Claim;
  readonly abort: AbortController;
  readonly lease: number;
  leaseEnd: number;
  /** running: of the next extension; ended: of the next try after a refusal, 0 if it was not refused. */
  due: number;
  /** When the timeout expires; Infinity if there is none. */
  readonly deadline: number;
  phase: Phase;
  cause: Interrupted | undefined;
  ending: Ending | undefined;
  /** When the last extension was sent. */
  extended: number;
  /** When the extensions were sent that have no answer: those that succeed have it in this order. */
  unanswered: number[];
  progress: Progress | undefined;
  tries: number;
  isFallback: boolean;
  /** When the run ended, in milliseconds since the epoch. */
  ended: number;
  /** Of the run. */
  span: Span | undefined;
  /** Why the task can't be passed to its handler. */
  readonly unreadable: Unreadable | undefined;
}

/** Returns how a claim ends. A result or outcome of the handler counts, even if the handler was told to stop. */
export function endingFor(held: Held, verdict: Verdict): Ending {
  if (verdict.ok) return ack(held.name, verdict.result);
  const { error } = verdict;
  if (!(error instanceof Outcome)) {
    if (held.phase === "lapsed" || held.cause instanceof Draining) return release(held.name); // not the task's fault: uses no attempt
    if (held.cause instanceof TimedOut) return fail(held.name, isStop(error) ? held.cause : error, "timeout");
  }
  return endingOf(held.name, error);
}

/** Returns the outcome of a run, in the terms of docs/tracing.md, and whether it failed. */
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

/** Tells a handler to stop, unless it has already been told. */
export function interrupt(held: Held, cause: Interrupted): void {
  if (held.cause) return;
  held.cause = cause;
  held.abort.abort(cause);
}

/** Returns the request for an extension, with the newest progress. */
export function extension(held: Held, now: number): ExtendRequest {
  held.extended = now;
  held.unanswered.push(now);
  const out = create(ExtendRequestSchema, held.name);
  if (held.task.lease) out.lease = held.task.lease;
  if (held.progress) out.progress = held.progress;
  held.progress = undefined;
  return out;
}

/** Returns why a handler should stop whose claim was lost. */
export function loss(reason: string, why = ""): Interrupted {
  return reason === "cancelled" ? new Cancelled("the task was cancelled") : new LeaseLost(`the claim is no longer valid: ${reason}${why}`);
}

/** Returns the name of a task in the log. */
export function title(held: Held): string {
  return `task ${held.name.taskId} (${held.task.type}, attempt ${held.task.attempt})`;
}

/** Logs how a handler ended. phase is the claim's phase before that. */
export function logEnd(log: Logger, held: Held, phase: Phase, verdict: Verdict): void {
  if (verdict.ok) return log.debug(`${title(held)}: succeeded`);
  const { error } = verdict;
  if (error instanceof Snooze || error instanceof Discard) log.info(`${title(held)}: ${error.name}: ${error.message}`);
  else if (phase === "running" && !(held.cause instanceof Draining)) log.warn(`${title(held)}: failed:`, error);
  else log.info(`${title(held)}: stopped: ${held.cause?.message ?? "its lease had ended"}`);
}
