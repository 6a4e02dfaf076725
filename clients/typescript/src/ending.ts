/** How a claim ends: turns what a handler returned or threw into a request to the broker. */

import { create, isMessage, toBinary } from "@bufbuild/protobuf";

import { cut, duration } from "./convert.js";
import { InvalidArgumentError, PayloadTooLargeError, type PawlError } from "./errors.js";
import { TaskErrorSchema, type TaskError } from "./gen/pawl/v1/task_pb.js";
import { AckRequestSchema, FailOutcome, FailRequestSchema, ReleaseRequestSchema, SettleRequestSchema } from "./gen/pawl/v1/worker_pb.js";
import type { AckRequest, FailRequest, ReleaseRequest, SettleRequest } from "./gen/pawl/v1/worker_pb.js";
import { maxErrorText } from "./limits.js";
import { DeadLetter, Discard, Interrupted, Outcome, Poison, RetryIn, Snooze } from "./outcome.js";

export const MAX_BYTES = 4 << 20; // keeps a frame well below the message limit: each result may have 1 MiB
const maxCauses = 5;
const headRoom = 256; // bytes of an ending without its result or error

/** Identifies a claim to the broker. */
export interface ClaimName {
  taskId: string;
  claimToken: string;
}

/** The encoded result of a handler. */
export interface Result {
  data: Uint8Array;
  contentType: string;
}

export type Ending = AckRequest | FailRequest | ReleaseRequest;

/** Returns the name of an ending's call. */
export function verbOf(ending: Ending | undefined): string {
  if (isMessage(ending, AckRequestSchema)) return "ack";
  return isMessage(ending, FailRequestSchema) ? "fail" : "release";
}

/** Ends the claim of a task that succeeded. */
export function ack(name: ClaimName, result: Result): Ending {
  return create(AckRequestSchema, { ...name, result: result.data, contentType: result.contentType });
}

/** Hands a task back without using an attempt. */
export function release(name: ClaimName): Ending {
  return create(ReleaseRequestSchema, { ...name });
}

/** Ends the claim of a task whose handler threw err. */
export function endingOf(name: ClaimName, err: unknown): Ending {
  try {
    if (err instanceof Snooze) return create(ReleaseRequestSchema, { ...name, delay: duration("delay", err.delay) });
    const failed = fail(name, err);
    if (err instanceof RetryIn) failed.retryIn = duration("retry_in", err.delay);
    return failed;
  } catch (bad) {
    if (!(bad instanceof InvalidArgumentError)) throw bad;
    return fail(name, bad);
  }
}

/** Fails an attempt. err may be an outcome that ends the task. */
export function fail(name: ClaimName, err: unknown, type = ""): FailRequest {
  return create(FailRequestSchema, { ...name, outcome: outcomeOf(err), error: taskError(err, type) });
}

function outcomeOf(err: unknown): FailOutcome {
  if (err instanceof DeadLetter) return FailOutcome.DEAD;
  if (err instanceof Discard) return FailOutcome.DISCARD;
  return err instanceof Poison ? FailOutcome.POISON : FailOutcome.RETRY;
}

/**
 * Replaces an ending that the broker can't accept. A result that is too large makes the task a dead letter, because another run would only
 * return it again; a delay out of range becomes a plain failure.
 */
export function fallback(name: ClaimName, ending: Ending, err: PawlError): Ending {
  return fail(name, ending.$typeName === "pawl.v1.AckRequest" ? new DeadLetter(`${err.code}: ${err.message}`, { cause: err }) : err);
}

/** Returns an ending that the stream can carry. One that it can't would break every stream of the worker, because each is sent it again. */
export function sendable(name: ClaimName, make: () => Ending): Ending {
  try {
    const ending = make();
    const frame = create(SettleRequestSchema);
    add(ending, frame);
    const size = toBinary(SettleRequestSchema, frame).length;
    if (size <= MAX_BYTES) return ending;
    return fallback(name, ending, new PayloadTooLargeError(`the result is too large to be sent: ${size} bytes, at most ${MAX_BYTES} are possible`));
  } catch (err) {
    return fail(name, err);
  }
}

/** Adds an ending to a frame. */
export function add(ending: Ending, frame: SettleRequest): void {
  if (ending.$typeName === "pawl.v1.AckRequest") frame.acks.push(ending);
  else if (ending.$typeName === "pawl.v1.FailRequest") frame.fails.push(ending);
  else frame.releases.push(ending);
}

/** Returns an upper bound of an ending's size in a frame, in bytes. */
export function sizeOf(ending: Ending): number {
  if (ending.$typeName === "pawl.v1.AckRequest") return headRoom + ending.result.length;
  return ending.$typeName === "pawl.v1.FailRequest" ? headRoom * 2 + maxErrorText + maxErrorText : headRoom;
}

const places = new WeakMap<object, string>(); // for errors, the steps in which they were thrown

/** Notes in which step an error was thrown, for the attempt log. The handler gets the error itself. */
export function blame(err: unknown, where: string): void {
  if (err instanceof Error && !(err instanceof Interrupted || err instanceof Snooze)) places.set(err, `${where}: ${placeOf(err)}`);
}

function placeOf(err: unknown): string {
  return (err instanceof Error && places.get(err)) || "";
}

function taskError(err: unknown, type: string): TaskError {
  try {
    const said = err instanceof Outcome && err.cause !== undefined ? err.cause : err;
    const message = (placeOf(err) || placeOf(said)) + (textOf(err) || textOf(said) || typeName(said));
    return create(TaskErrorSchema, {
      message: cut(message, maxErrorText),
      type: cut(type || typeName(said), 256),
      stack: cut(stackOf(err), maxErrorText), // the innermost calls come first
    });
  } catch {
    return create(TaskErrorSchema, { message: "an error that cannot be described", type }); // for example, its getters throw
  }
}

function textOf(err: unknown): string {
  return err instanceof Error ? String(err.message) : String(err);
}

function typeName(err: unknown): string {
  if (!(err instanceof Error)) return typeof err;
  return String(err.name === "Error" ? err.constructor.name : err.name);
}

function stackOf(err: unknown): string {
  const stacks: string[] = [];
  for (let each = err; each instanceof Error && stacks.length < maxCauses; each = each.cause) stacks.push(String(each.stack ?? each.message));
  return stacks.join("\nCaused by: ");
}
