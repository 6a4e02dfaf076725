/**
 * The operators' calls: queues, dead letters, operations, workers, single tasks, statistics. Schedules are client.schedules.
 *
 *     await client.admin.queues.pause("mail", "the provider is down");
 */

import { DeadLetters, Operations, Queues, Tasks, Workers } from "./operate.js";
import type { Caller } from "./rpc.js";

/** The operators' calls, by subject. */
export class Admin {
  readonly queues: Queues;
  readonly deadLetters: DeadLetters;
  readonly tasks: Tasks;
  readonly operations: Operations;
  readonly workers: Workers;
  readonly #caller: Caller;

  constructor(caller: Caller) {
    this.#caller = caller;
    this.queues = new Queues(caller);
    this.deadLetters = new DeadLetters(caller);
    this.tasks = new Tasks(caller);
    this.operations = new Operations(caller);
    this.workers = new Workers(caller);
  }

  /**
   * Returns the same calls in the name of an actor, such as the user of your program, which the server records with what they change. A name
   * has at most 256 ASCII characters. If the server uses tokens, the name of the token is recorded instead.
   */
  withActor(name: string): Admin {
    return new Admin(this.#caller.acting(name));
  }
}
