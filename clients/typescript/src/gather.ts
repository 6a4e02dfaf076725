/**
 * Decides which concurrent enqueues share a request.
 *
 * While few requests are in flight, a task is sent immediately, with those enqueued in the same turn of the event loop. Otherwise it waits,
 * and the next request takes all waiting tasks. A lone caller pays nothing, no timer adds latency, and requests grow with the load. Each queue
 * has requests of its own, so that one whose shard does not answer holds up no other.
 */

import type { Enqueued } from "./gen/pawl/v1/producer_pb.js";
import type { TaskSpec } from "./gen/pawl/v1/task_pb.js";

export const maxBatchTasks = 1000;
export const maxBatchBytes = 4 << 20;

// This many requests may be in flight with any number of tasks, and more only with at least fullRequest tasks: every request costs both
// sides, but with too few in flight, they would wait for the broker's disk one after the other.
const eagerRequests = 2;
const fullRequest = 16;
const maxRequests = 8;

/** The result for one task. */
export type Outcome = { answer: Enqueued | undefined } | { error: Error };

interface Waiting {
  task: TaskSpec;
  size: number;
  done: (outcome: Outcome) => void;
}

/** Gathers the enqueues of a client. */
export class Gatherer {
  readonly #send: (tasks: TaskSpec[]) => Promise<Outcome[]>;
  readonly #lanes = new Map<string, Lane>();

  /** send makes one request, and returns one outcome per task. */
  constructor(send: (tasks: TaskSpec[]) => Promise<Outcome[]>) {
    this.#send = send;
  }

  /** Sends a task of size bytes, without retrying. */
  enqueue(task: TaskSpec, size: number): Promise<Outcome> {
    const queue = task.queue ?? "";
    let lane = this.#lanes.get(queue);
    if (!lane) this.#lanes.set(queue, (lane = new Lane(this.#send, (idle) => this.#drop(queue, idle))));
    return lane.enqueue(task, size);
  }

  /** Drops an idle lane, unless it was dropped before and the queue has a new one. */
  #drop(queue: string, idle: Lane): void {
    if (this.#lanes.get(queue) === idle) this.#lanes.delete(queue);
  }
}

/** The tasks for one queue. */
class Lane {
  #waiting: Waiting[] = [];
  #underWay = 0;

  /** idle is called when no task is left, more than once if several requests end at the same time. */
  constructor(
    private readonly send: (tasks: TaskSpec[]) => Promise<Outcome[]>,
    private readonly idle: (lane: Lane) => void,
  ) {}

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
    if (this.#underWay === 0) this.idle(this);
  }

  /** Takes the tasks of one request from those waiting. */
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
      outcomes = await this.send(tasks.map(({ task }) => task));
    } catch (err) {
      outcomes = tasks.map(() => ({ error: err as Error }));
    }
    this.#underWay--;
    tasks.forEach(({ done }, at) => done(outcomes[at] as Outcome));
    queueMicrotask(() => this.#begin()); // callers that were just answered may enqueue more
  }
}
