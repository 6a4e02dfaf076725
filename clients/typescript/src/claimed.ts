/** A claim as what runs within it sees it: who holds it, what of it changes. It knows no handlers. */

import type { Progress } from "./gen/pawl/v1/task_pb.js";
import type { Kept } from "./kept.js";
import type { Caller } from "./rpc.js";

/** The worker, as a claim sees it. */
export interface Holder {
  readonly caller: Caller;
  /** Sends progress soon. */
  setProgress(progress: Progress): void;
  /** Takes note that a call of the handler's, sent at a time of performance.now, has extended the lease. */
  extended(sent: number, cancelRequested: boolean): void;
  /** Takes the broker's word that the claim is gone. */
  lost(reason: string): void;
}

/** The parts of a claim that change. */
export interface ClaimState {
  kept: Kept;
  /** By the names of steps and once keys: what the handler is running under each. */
  readonly busy: Map<string, Promise<unknown>>;
  /** Once keys that the claim may or may not hold. */
  readonly unclear: Set<string>;
}

const inner = new WeakMap<object, { holder: Holder; state: ClaimState }>();

/** Returns the worker and the state of a claim, for the other parts of this package. */
export function innerOf(claim: object): { holder: Holder; state: ClaimState } {
  const out = inner.get(claim);
  if (!out) throw new TypeError("this is not a Claim of a worker");
  return out;
}

/** Has a claim's worker and state found by innerOf. */
export function hold(claim: object, holder: Holder, state: ClaimState): void {
  inner.set(claim, { holder, state });
}

/** What steps need of a claim. */
export interface Claimed {
  readonly id: string;
  readonly type: string;
  readonly token: string;
  /** Its length in milliseconds. */
  readonly lease: number;
  readonly signal: AbortSignal;
}
