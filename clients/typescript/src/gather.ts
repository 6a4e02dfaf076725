/**
 * Decides which enqueues that run at the same time go together in one request.
 *
 * While few requests are under way, a task goes out at once, with those enqueued in the same turn of the event loop. Otherwise it waits, and
 * the next request takes all that wait. So a lone caller pays nothing, no timer makes anybody wait, and requests grow with the load.
 */

import type { Enqueued } from "./gen/pawl/v1/producer_pb.js";
import type { TaskSpec } from "./gen/pawl/v1/task_pb.js";

export const maxBatchTasks = 1000;
export const maxBatchBytes = 4 << 20;

// So many requests may be under way with however few tasks each, and more only with fullRequest tasks: each request costs both sides, and too
// few would wait for the broker's disk one after the other.
const eagerRequests = 2;
const fullRequest = 16;
const maxRequests = 8;

/** What became of one task. */
export type Outcome = { answer: Enqueued | undefined } | { error: Error };

interface Waiting {
  task: TaskSpec;
  size: number;
  done: (outcome: Outcome) => void;
}

/** Gathers the enqueues of a client. */
export class Gatherer {
  readonly #send: (tasks: TaskSpec[]) => Promise<Outcome[]>;
  #waiting: Waiting[] = [];
  #underWay = 0;

  /** send makes one request, and gives as many outcomes as there are tasks. */
  constructor(send: (tasks: TaskSpec[]) => Promise<Outcome[]>) {
    this.#send = send;
  }

  /** Sends a task of so many bytes, once. */
  enqueue(task: TaskSpec, size: number): Promise<Outcome> {
    return new Promise((done) => {
      this.#waiting.push({ task, size, done });
      queueMicrotask(() => this.#begin());
    });
  }

  #begin(): void {
    while (this.#waiting.length > 0 && this.#underWay < (this.#waiting.length >= fullRequest ? maxRequests : eagerRequests)) {
      this.#underWay++;
      void this.#request(this.#take());
    }
  }

  /** Takes what goes into one request out of what waits. */
  #take(): Waiting[] {
    let size = 0;
    let n = 0;
    for (; n < Math.min(this.#waiting.length, maxBatchTasks); n++) {
      size += this.#waiting[n]?.size ?? 0;
      if (n > 0 && size > maxBatchBytes) break;
    }
    return this.#waiting.splice(0, n);
  }

  async #request(tasks: Waiting[]): Promise<void> {
    let outcomes: Outcome[] = [];
    try {
      outcomes = await this.#send(tasks.map(({ task }) => task));
    } catch (err) {
      outcomes = tasks.map(() => ({ error: err as Error }));
    }
    this.#underWay--;
    tasks.forEach(({ done }, at) => done(outcomes[at] as Outcome));
    queueMicrotask(() => this.#begin()); // those just answered may have more
  }
}
