/** Handlers: the functions that run tasks. */

import type { Claim } from "./claim.js";
import { messageOf } from "./convert.js";
import { isJSON } from "./options.js";
import { Poison } from "./outcome.js";
import type { Task } from "./task.js";

/** The function that runs tasks of a type, for a Worker. */
export interface Handler {
  readonly type: string;
  /** Runs a task, and returns its result. */
  run(claim: Claim): Promise<unknown>;
}

/**
 * Makes a function the handler of a task type. It receives the arguments and the claim; its return value, or the value of its promise,
 * becomes the result of the task. It should stop when claim.signal is aborted: pass the signal on to what it calls.
 *
 *     handle(welcome, async ({ to }, claim) => `welcome, ${to}`)
 */
export function handle<Args, Result>(task: Task<Args, Result>, fn: (args: Args, claim: Claim) => Promise<Result> | Result): Handler {
  return { type: task.type, run: async (claim) => fn(argumentsOf(task, claim), claim) };
}

function argumentsOf<Args>(task: Task<Args, unknown>, claim: Claim): Args {
  const payload = isJSON(task.contentType) ? claim.decodePayload() : claim.payload;
  if (!task.parse) return payload as Args;
  try {
    return task.parse(payload);
  } catch (err) {
    throw new Poison(`payload of type "${task.type}": ${messageOf(err)}`, { cause: err });
  }
}
