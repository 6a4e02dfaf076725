/** Saves checkpoints, and runs what should happen only once: steps of a task, and effects shared by several tasks. */

import type { DescMessage, DescMethodUnary, MessageInitShape, MessageShape } from "@bufbuild/protobuf";

import { innerOf, type Claimed } from "./claimed.js";
import { bytesOf, duration, milliseconds, millisecondsOf, show, type Duration } from "./convert.js";
import { blame } from "./ending.js";
import { invalid, InvalidArgumentError, NotFoundError, PawlError, StaleClaimError, TimeoutError, UnavailableError } from "./errors.js";
import { OnceState, type BeginOnceResponse } from "./gen/pawl/v1/once_pb.js";
import { WorkerService } from "./gen/pawl/v1/worker_pb.js";
import { jsonOf, type Kept } from "./kept.js";
import { firstRest, maxHold, maxName, maxOnceResult, maxRest } from "./limits.js";
import { DeadLetter, OnceHeld } from "./outcome.js";
import { backoff, type CallLimits } from "./rpc.js";

const minTtl = 1000;
const maxPatience = 10_000; // how long to wait for a once key, but no longer than half a lease
const minPutOff = 1000; // for how long a task is snoozed that has waited in vain
const maxPutOff = 30_000;
// Time for recording what has happened, even if the handler is told to stop meanwhile: what is not recorded will be done again.
const recordTime = 10_000;

/** Saves a new version of the checkpoint, one at a time, and returns when the broker has it on stable storage. */
export function save(claim: Claimed, change: (kept: Kept) => Kept, limits: CallLimits): Promise<void> {
  const { state, holder } = innerOf(claim);
  return alone(claim, "save", async () => {
    const kept = change(state.kept);
    const own = kept.encode();
    const checkpoint = holder.caller.encryption?.sealCheckpoint(claim.type, own) ?? own;
    const sent = performance.now();
    const request = { taskId: claim.id, claimToken: claim.token, checkpoint, lease: duration("lease", claim.lease) };
    await call(claim, WorkerService.method.extend, request, limits);
    holder.extended(sent);
    state.kept = kept;
  });
}

/** Runs fn unless its result is already stored, and stores it. */
export function step<R>(claim: Claimed, name: string, fn: () => Promise<R> | R): Promise<R> {
  return blamed(`step ${show(name)} of task ${show(claim.id)}`, () => runStep(claim, name, fn));
}

async function runStep<R>(claim: Claimed, name: string, fn: () => Promise<R> | R): Promise<R> {
  checkName("name", name);
  const { state } = innerOf(claim);
  return alone(claim, `step/${name}`, async () => {
    const recorded = state.kept.steps.get(name);
    if (recorded !== undefined) return JSON.parse(recorded) as R;
    state.kept.checkRoom();
    claim.signal.throwIfAborted();
    const result = recordable(await fn());
    await record(`step ${show(name)} has run`, (deadline) => save(claim, (kept) => kept.withStep(name, result), { deadline }));
    return JSON.parse(result) as R;
  });
}

/** Runs fn unless its effect is already recorded under the key, and records it. */
export function once<R>(claim: Claimed, key: string, fn: () => Promise<R> | R, ttl: Duration | undefined): Promise<R> {
  return blamed(`once ${show(key)} of task ${show(claim.id)}`, () => runOnce(claim, key, fn, ttl));
}

async function runOnce<R>(claim: Claimed, key: string, fn: () => Promise<R> | R, ttl: Duration | undefined): Promise<R> {
  checkName("key", key);
  const kept = ttl === undefined ? undefined : milliseconds("ttl", ttl);
  if (kept !== undefined && !(kept >= minTtl && kept <= maxHold)) throw invalid("ttl", `${show(ttl)} is not between 1 s and 365 days`);
  const { state } = innerOf(claim);
  return alone(claim, `once/${key}`, async () => {
    if (state.unclear.has(key)) throw new UnavailableError(`once ${show(key)}: it is unknown whether this run still holds the key`);
    const answer = await begin(claim, key);
    if (answer.state === OnceState.DONE) return parse<R>(Buffer.from(answer.result).toString());
    let result: string;
    try {
      result = onceResult(await fn());
    } catch (err) {
      await abandon(claim, key);
      throw err;
    }
    const request = { taskId: claim.id, claimToken: claim.token, key, result: Buffer.from(result), ...(kept && { ttl: duration("ttl", kept) }) };
    await record(`the function of once ${show(key)} has run`, (deadline) => call(claim, WorkerService.method.finishOnce, request, { deadline }));
    return parse<R>(result);
  });
}

/** Notes in an error where it was thrown. */
async function blamed<R>(where: string, run: () => Promise<R>): Promise<R> {
  try {
    return await run();
  } catch (err) {
    blame(err, where);
    throw err;
  }
}

/** Asks for the key until it is free or done, or until the wait is over. */
async function begin(claim: Claimed, key: string): Promise<BeginOnceResponse> {
  const patience = performance.now() + Math.min(maxPatience, claim.lease / 2);
  for (let attempt = 0; ; attempt++) {
    claim.signal.throwIfAborted();
    const request = { taskId: claim.id, claimToken: claim.token, key };
    const answer = await call(claim, WorkerService.method.beginOnce, request, { signal: claim.signal });
    if (answer.state !== OnceState.HELD) return answer;
    if (performance.now() >= patience) {
      const putOff = Math.min(Math.max(claim.lease / 2, minPutOff), maxPutOff) * (0.5 + Math.random() / 2);
      throw new OnceHeld(putOff, `once ${show(key)} is held by task ${answer.holder?.taskId}, worker ${show(answer.holder?.worker)}`);
    }
    const rest = backoff(attempt, firstRest, maxRest);
    await innerOf(claim).holder.caller.sleep(Math.min(rest, millisecondsOf(answer.retryAfter) || rest), claim.signal);
  }
}

/** Lets others try. It is not retried, because a late retry could release a key that the handler has acquired again. */
async function abandon(claim: Claimed, key: string): Promise<void> {
  const { holder, state } = innerOf(claim);
  const request = { taskId: claim.id, claimToken: claim.token, key };
  try {
    await holder.caller.once(WorkerService.method.abandonOnce, request, { deadline: performance.now() + recordTime });
  } catch (err) {
    if (!(err instanceof PawlError)) throw err;
    if (!(err instanceof StaleClaimError)) state.unclear.add(key); // the end of a claim releases it
  }
}

/** Records what has happened. */
async function record(what: string, write: (deadline: number) => Promise<unknown>): Promise<void> {
  try {
    await write(performance.now() + recordTime);
  } catch (err) {
    if (err instanceof InvalidArgumentError) throw unrecorded(err);
    if (!(err instanceof UnavailableError || err instanceof TimeoutError)) throw err;
    throw new UnavailableError(`${what}, but its completion could not be recorded: ${err.message}`, { cause: err });
  }
}

/** Makes a call about the claim. If the claim is lost, it throws the reason why the handler should stop. */
async function call<I extends DescMessage, O extends DescMessage>(
  claim: Claimed,
  method: DescMethodUnary<I, O>,
  request: MessageInitShape<I>,
  limits: CallLimits,
): Promise<MessageShape<O>> {
  const { holder } = innerOf(claim);
  try {
    return await holder.caller.call(method, request, limits);
  } catch (err) {
    if (err instanceof StaleClaimError || err instanceof NotFoundError) {
      holder.lost(err.reason);
      claim.signal.throwIfAborted();
    }
    throw err;
  }
}

/** Runs fn when nothing else in the handler uses a name any more. */
async function alone<T>(claim: Claimed, name: string, fn: () => Promise<T>): Promise<T> {
  const { busy } = innerOf(claim).state;
  const before = busy.get(name);
  const running = before ? before.then(fn, fn) : fn();
  busy.set(name, running);
  try {
    return await running;
  } finally {
    if (busy.get(name) === running) busy.delete(name);
  }
}

function checkName(field: string, name: string): void {
  const size = typeof name === "string" && name.isWellFormed() ? bytesOf(name) : 0;
  if (size < 1 || size > maxName) throw invalid(field, `${show(name)} is not 1 to ${maxName} bytes of UTF-8`);
}

function parse<R>(json: string): R {
  return (json === "" ? undefined : JSON.parse(json)) as R;
}

function recordable(result: unknown): string {
  try {
    return jsonOf("result", result);
  } catch (err) {
    if (err instanceof InvalidArgumentError) throw unrecorded(err);
    throw err;
  }
}

function onceResult(result: unknown): string {
  if (result === undefined) return "";
  const json = recordable(result);
  if (bytesOf(json) > maxOnceResult) throw unrecorded(invalid("result", `${bytesOf(json)} bytes, at most ${maxOnceResult}`));
  return json;
}

/** Returns the outcome for an effect that no attempt can record. */
function unrecorded(err: PawlError): DeadLetter {
  return new DeadLetter(`the function has run, but its result cannot be recorded: ${err.message}`, { cause: err });
}
