/** A claim as seen from within it: who holds it, and which parts change. It does not know handlers. */

import type { Progress } from "./gen/pawl/v1/task_pb.js";
import type { Kept } from "./kept.js";
import type { Caller } from "./rpc.js";

/** A claim's view of the worker. */
export interface Holder {
  readonly caller: Caller;
  /** Sends progress soon. */
  setProgress(progress: Progress): void;
  /** Records that a call by the handler, sent at a time of performance.now, extended the lease. */
  extended(sent: number): void;
  /** Records that the broker has reported the claim lost. */
  lost(reason: string): void;
}

/** The mutable parts of a claim. */
export interface ClaimState {
  kept: Kept;
  /** What the handler is running, by the names of steps and once keys. */
  readonly busy: Map<string, Promise<unknown>>;
  /** Once keys of which it is unknown whether the claim holds them. */
  readonly unclear: Set<string>;
}

const inner = new WeakMap<object, { holder: Holder; state: ClaimState }>();

/** Returns the worker and the state of a claim, for the other parts of this package. */
export function innerOf(claim: object): { holder: Holder; state: ClaimState } {
  const out = inner.get(claim);
  if (!out) throw new TypeError("this is not a Claim of a worker");
  return out;
}

/** Registers a claim's worker and state for innerOf. */
export function hold(claim: object, holder: Holder, state: ClaimState): void {
  inner.set(claim, { holder, state });
}

/** The parts of a claim that steps need. */
export interface Claimed {
  readonly id: string;
  readonly type: string;
  readonly token: string;
  /** The length of the lease in milliseconds. */
  readonly lease: number;
  readonly signal: AbortSignal;
}
