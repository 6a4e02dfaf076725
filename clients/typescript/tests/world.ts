/** One broker for the tests of a file, and queues that no other test uses. */

import { randomUUID } from "node:crypto";
import { after, before } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";

import { Client, Worker, type Handler, type Logger, type WorkerOptions } from "../src/index.js";
import { Broker } from "../src/testing.js";

/** The broker and a client of it, while tests run. */
export interface World {
  broker: Broker;
  client: Client;
}

/** Starts a broker before the tests of a file, and ends it behind them. */
export function world(flags: readonly string[] = []): World {
  const out = {} as World;
  before(async () => {
    out.broker = await Broker.start({ flags });
    out.client = new Client(out.broker.address);
  });
  after(async () => {
    out.client.close();
    await out.broker.close();
  });
  return out;
}

/** Names a queue that no other test uses. */
export function newQueue(): string {
  return `q-${randomUUID().slice(0, 12)}`;
}

/** Runs a worker while a test does, and ends it in good order. */
export async function working(client: Client, handlers: Handler[], options: WorkerOptions, during: (worker: Worker) => Promise<void>): Promise<void> {
  const worker = new Worker(client, handlers, { logger: silent, ...options });
  const running = worker.run();
  try {
    await Promise.race([during(worker), running.then(() => Promise.reject(new Error("the worker has ended")))]);
  } finally {
    worker.stop();
    await running;
  }
}

/** Logs nothing. */
export const silent: Logger = { debug() {}, info() {}, warn() {}, error() {} };

/** Waits until what is asked for holds. */
export async function eventually(holds: () => boolean | Promise<boolean>, timeout = 120_000): Promise<void> {
  for (const end = performance.now() + timeout; !(await holds()); await sleep(10)) {
    if (performance.now() > end) throw new Error(`it did not come true: ${holds.toString()}`);
  }
}

/** A promise that a test resolves. */
export function gate<T = void>(): { open: (value: T) => void; opened: Promise<T> } {
  let open!: (value: T) => void;
  const opened = new Promise<T>((resolve) => (open = resolve));
  return { open, opened };
}
