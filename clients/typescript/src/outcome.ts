/** What a handler throws to decide what happens to its task, and the reasons why it is told to stop. */

import type { Duration } from "./convert.js";

/**
 * Thrown by a handler to decide what happens to its task. Anything else that it throws is a failure, which is retried until the attempts are
 * used up.
 */
export abstract class Outcome extends Error {
  constructor(message = "", options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** Ends the task as a dead letter immediately, because no retry can help. */
export class DeadLetter extends Outcome {}

/** Ends the task on purpose, because there is nothing left to do. It raises no alarm. */
export class Discard extends Outcome {}

/**
 * Ends the task as poisoned, because its payload cannot be read. Tasks whose payload is not JSON, or is refused by parse, are poisoned
 * automatically.
 */
export class Poison extends Outcome {}

/** Fails the attempt. The next one is due after delay, instead of the backoff. */
export class RetryIn extends Outcome {
  constructor(
    readonly delay: Duration,
    message?: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}

/** Postpones the task by delay. It is not a failure, and no attempt is used. */
export class Snooze extends Outcome {
  constructor(
    readonly delay: Duration,
    message?: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}

/** Another task holds the once key. If the handler does not catch this, its task is snoozed. */
export class OnceHeld extends Snooze {}

/**
 * Why a handler should stop before its task is done: the reason of claim.signal. What the handler then throws does not count as a failure,
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

/** The claim is no longer valid, and another worker may run the task. The result of this handler is ignored. */
export class LeaseLost extends Interrupted {}

/** The worker is stopping and its drain timeout is over. The task goes back to its queue, and no attempt is used. */
export class Draining extends Interrupted {}

/** The time limit of the run is over. The attempt fails unless the handler returns a result. */
export class TimedOut extends Interrupted {}
