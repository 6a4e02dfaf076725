/** Worker: claims tasks and runs their handlers. */

import { randomBytes } from "node:crypto";
import { hostname } from "node:os";

import { create } from "@bufbuild/protobuf";

import { callerOf, Client } from "./client.js";
import { bytesOf, cut, duration, known, milliseconds, show, string, type Duration } from "./convert.js";
import { invalid } from "./errors.js";
import { Order, WorkHelloSchema, type WorkHello } from "./gen/pawl/v1/worker_pb.js";
import type { Handler } from "./handler.js";
import { maxClaimQueues, maxClaimTypes, maxLease, maxName, maxWeight, minLease } from "./limits.js";
import { safely, stderrLogger, type Logger } from "./log.js";
import { Run } from "./run.js";

const maxConcurrency = 10_000;

/**
 * Queues with weights, { mail: 7, default: 3 }, to claim from them in that proportion, or in strict order, ["urgent", "default"], to claim
 * from the first that has a task. "mail=7,default=3" and "urgent,default" mean the same.
 */
export type WorkerQueues = string | readonly string[] | Readonly<Record<string, number>>;

/** The options of a worker. */
export interface WorkerOptions {
  /** Default: "default". */
  queues?: WorkerQueues;
  /** How many handlers run at the same time; default 10. */
  concurrency?: number;
  /** The length of leases, 1 s to 12 h; by default the queue's. The worker extends them while handlers run. */
  lease?: Duration;
  /** How long handlers may take to finish once the worker stops; default 25 s. */
  drainTimeout?: Duration;
  /** The size limit for the tasks in one push; default 4 MiB. */
  maxBytes?: number;
  /** Shown in attempt logs and in lists of workers; by default host/pid. */
  name?: string;
  /** The worker's logger; by default warnings and errors go to standard error. */
  logger?: Logger;
}

const workerNames = {
  queues: 0,
  concurrency: 0,
  lease: 0,
  drainTimeout: 0,
  maxBytes: 0,
  name: 0,
  logger: 0,
} satisfies Record<keyof WorkerOptions, 0>;

const workerHints = { // for BullMQ's options
  connection: "it is the client's",
  limiter: "it is a setting of the queue: client.admin.queues.put",
  lockDuration: "use lease",
  queue: "use queues",
};

/**
 * Claims tasks over one long-lived stream and runs their handlers. Leases are extended while handlers run, also by a thread while they block
 * the event loop.
 */
export class Worker {
  readonly #run: Run;
  #started = false;

  constructor(client: Client, handlers: Iterable<Handler>, options: WorkerOptions = {}) {
    const called = 'want new Worker(client, [handle(task, fn)], { queues: "mail" })';
    if (!(client instanceof Client)) throw new TypeError(`the first argument is ${show(client)}, not a Client: ${called}`);
    if (typeof handlers !== "object" || handlers === null || !(Symbol.iterator in handlers)) {
      throw new TypeError(`the second argument is ${show(handlers)}, not a list of handlers: ${called}`);
    }
    known("a worker", options, workerNames, workerHints);
    const { concurrency = 10, logger = stderrLogger("warn") } = options;
    if (!Number.isInteger(concurrency) || concurrency < 1 || concurrency > maxConcurrency) {
      throw invalid("concurrency", `is ${show(concurrency)}, want 1 to ${maxConcurrency}`);
    }
    const drainTimeout = milliseconds("drainTimeout", options.drainTimeout ?? 25_000);
    if (drainTimeout < 0) throw invalid("drainTimeout", `is ${drainTimeout} ms, want 0 or more`);
    const byType = handlersByType(handlers);
    const hello = helloOf(options, [...byType.keys()].sort(), concurrency);
    this.#run = new Run(callerOf(client).root, hello, byType, { concurrency, drainTimeout, logger: safely(logger) });
  }

  /**
   * Claims and runs tasks until stop is called or the signal is aborted, and then drains: it takes no more tasks, lets handlers finish, and
   * after drainTimeout tells the rest to stop and releases their tasks, so that no attempt is used.
   *
   * A connection that breaks is reestablished indefinitely; handlers continue meanwhile, and their outcomes are reported afterwards. Throws a
   * PawlError if the broker refuses the worker when it first connects, or its token for a minute; and UnavailableError if in the end it could
   * not report how some tasks ended: these run again after their lease. A worker runs only once.
   */
  async run(signal?: AbortSignal): Promise<void> {
    if (this.#started) throw new Error("the worker has already been run");
    this.#started = true;
    const stop = () => this.stop();
    if (signal?.aborted) stop();
    signal?.addEventListener("abort", stop);
    const termination = signal && terminations.get(signal);
    termination?.use();
    try {
      await this.#run.do();
    } finally {
      signal?.removeEventListener("abort", stop);
      termination?.leave();
    }
  }

  /** Starts draining. */
  stop(): void {
    this.#run.stop();
  }
}

/**
 * Returns a signal that is aborted by SIGTERM or SIGINT: await worker.run(terminated()). A second SIGTERM or SIGINT ends the process
 * immediately, as it would without this; so does the first, once the workers that run with the signal have ended.
 */
export function terminated(): AbortSignal {
  const out = new AbortController();
  terminations.set(out.signal, new Termination(out));
  return out.signal;
}

/** What aborts a signal of terminated: handlers of the process, while a worker uses it or may still do so. */
class Termination {
  readonly #names = ["SIGTERM", "SIGINT"] as const;
  readonly #abort: () => void;
  #users = 0;

  constructor(out: AbortController) {
    this.#abort = () => {
      this.#listen(false);
      out.abort();
    };
    this.#listen(true);
  }

  use(): void {
    this.#users++;
  }

  leave(): void {
    if (--this.#users === 0) this.#listen(false);
  }

  #listen(on: boolean): void {
    for (const name of this.#names) on ? process.on(name, this.#abort) : process.off(name, this.#abort);
  }
}

const terminations = new WeakMap<AbortSignal, Termination>();

function handlersByType(handlers: Iterable<Handler>): Map<string, Handler> {
  const out = new Map<string, Handler>();
  for (const handler of handlers) {
    if (out.has(handler.type)) throw invalid("types", `there are two handlers for the type ${show(handler.type)}`);
    out.set(handler.type, handler);
  }
  if (out.size < 1 || out.size > maxClaimTypes) throw invalid("types", `there are handlers for ${out.size} types, want 1 to ${maxClaimTypes}`);
  return out;
}

function helloOf(options: WorkerOptions, types: string[], slots: number): WorkHello {
  const host = cut(hostname(), maxName);
  const out = create(WorkHelloSchema, {
    worker: string("name", options.name || cut(`${host}/${process.pid}`, maxName)),
    types,
    host,
    pid: process.pid,
    version: `node ${process.versions.node}`,
    instance: randomBytes(16).toString("hex"),
    slots,
  });
  if (bytesOf(out.worker) > maxName) throw invalid("name", `${show(out.worker)} has more than ${maxName} bytes`);
  setQueues(out, options.queues ?? "default");
  if (options.lease !== undefined) {
    const lease = milliseconds("lease", options.lease);
    if (lease < minLease || lease > maxLease) throw invalid("lease", `is ${lease} ms, want ${minLease} to ${maxLease}`);
    out.lease = duration("lease", lease);
  }
  if (options.maxBytes !== undefined) {
    if (!Number.isSafeInteger(options.maxBytes) || options.maxBytes < 1) throw invalid("max_bytes", `is ${show(options.maxBytes)}, want 1 or more`);
    out.maxBytes = BigInt(options.maxBytes);
  }
  return out;
}

function setQueues(hello: WorkHello, queues: WorkerQueues): void {
  const weights = weightsOf(queues);
  if (weights.size < 1 || weights.size > maxClaimQueues) throw invalid("queues", `${weights.size} queues, want 1 to ${maxClaimQueues}`);
  const weighted = [...weights.values()].filter((weight) => weight !== undefined).length;
  if (weighted > 0 && weighted < weights.size) throw invalid("queues", "give a weight to all queues or to none");
  hello.order = weighted > 0 ? Order.WEIGHTED : Order.STRICT;
  for (const [queue, weight] of weights) {
    if (!queue) throw invalid("queues", "a queue has no name");
    if (weight !== undefined && !(Number.isInteger(weight) && weight >= 1 && weight <= maxWeight)) {
      throw invalid(`queues.${queue}`, `${show(weight)} is not between 1 and ${maxWeight}`);
    }
    hello.queues.push({ $typeName: "pawl.v1.QueueShare", queue: string("queues", queue), weight: weight ?? 0 });
  }
}

function weightsOf(queues: WorkerQueues): Map<string, number | undefined> {
  if (typeof queues === "object" && !Array.isArray(queues)) return new Map(Object.entries(queues));
  const out = new Map<string, number | undefined>();
  for (const part of typeof queues === "string" ? queues.split(",") : (queues as readonly string[])) {
    const [, name = "", weight] = (typeof queues === "string" && /^([^=]*)=(.*)$/.exec(part.trim())) || [, part.trim()];
    if (weight !== undefined && !/^\d+$/.test(weight)) throw invalid("queues", `${show(part)}: the weight is not a number`);
    if (out.has(name)) throw invalid("queues", `${show(name)} is given twice`);
    out.set(name, weight === undefined ? undefined : Number(weight));
  }
  return out;
}
