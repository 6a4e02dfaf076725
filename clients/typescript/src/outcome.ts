/** What a handler throws to decide what becomes of its task, and why it is told to stop. */

import type { Duration } from "./convert.js";

/**
 * What a handler throws to decide what becomes of its task. Anything else that it throws is a failure that is retried until the attempts run
 * out.
 */
export abstract class Outcome extends Error {
  constructor(message = "", options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** Ends the task as a dead letter at once: no retry can help. */
export class DeadLetter extends Outcome {}

/** Ends the task on purpose: there is nothing to do any more. It raises no alarm. */
export class Discard extends Outcome {}

/** Ends the task as poisoned: its payload cannot be read. Payloads that are not JSON, or that parse refuses, end so by themselves. */
export class Poison extends Outcome {}

/** Fails the attempt; the next one is due after delay, instead of the backoff. */
export class RetryIn extends Outcome {
  constructor(
    readonly delay: Duration,
    message?: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}

/** Puts the task off for delay. It is not a failure: no attempt is used. */
export class Snooze extends Outcome {
  constructor(
    readonly delay: Duration,
    message?: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}

/** Another task holds the once key. If the handler lets this pass, its task is put off. */
export class OnceHeld extends Snooze {}

/**
 * Why a handler should stop before its task is done: the reason of claim.signal. What the handler throws then is no failure of the task,
 * except after a timeout.
 */
export abstract class Interrupted extends Error {
  constructor(message = "") {
    super(message);
    this.name = new.target.name;
  }
}

/** A caller cancelled the task. */
export class Cancelled extends Interrupted {}

/** The claim no longer holds: another worker may run the task. What this handler returns changes nothing. */
export class LeaseLost extends Interrupted {}

/** The worker stops, and its drain timeout is over. The task goes back to the queue; no attempt is used. */
export class Draining extends Interrupted {}

/** The time limit of the run is over. The attempt has failed unless the handler returns a result. */
export class TimedOut extends Interrupted {}
