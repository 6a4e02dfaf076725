/**
 * A thread that keeps the leases of a worker while handlers block the event loop. It extends a lease only if the worker has
 * not done so itself in time, over a connection of its own. It does not know why leases end: the worker tells it what to keep.
 */

import { MessageChannel, receiveMessageOnPort, Worker, type MessagePort } from "node:worker_threads";

import type { Connection, ConnectionOptions } from "./connection.js";
import { messageOf } from "./convert.js";
import type { ClaimName } from "./ending.js";
import type { Logger } from "./log.js";

const tokenAge = 30_000; // how old a token of a function may be that the thread uses
const tokenRetry = 1000; // after a failure

/** A lease that the thread is to keep. Times are those of clock. */
export interface Lease extends ClaimName {
  length: number;
  from: number; // when it was last extended
  until: number; // the task's timeout: it is not extended after that
}

/** What a worker tells the thread. */
export interface Order {
  hold: Lease[];
  extended: { claimToken: string; at: number }[];
  drop: string[];
  token?: string;
}

/** What the thread has heard from the broker: that an extension sent at a time was granted, or that the claim is lost. */
export type Report = { claimToken: string; at: number } | { claimToken: string; lost: string };

/** What a thread starts with. */
export interface Start {
  port: MessagePort;
  connection: ConnectionOptions;
}

/** The thread of one run of a worker. It keeps no process alive. */
export class Keeper {
  readonly #port: MessagePort;
  readonly #connection: Connection;
  #thread: Worker | undefined; // undefined: there is none, or it has failed
  #order: Order | undefined; // to be sent
  #renewing: NodeJS.Timeout | undefined;

  readonly #reports: Report[] = [];

  /** heard is called when there are reports. */
  constructor(connection: Connection, log: Logger, heard: () => void) {
    this.#connection = connection;
    const { port1, port2 } = new MessageChannel();
    this.#port = port1;
    const failed = (err: unknown) => {
      this.#thread = undefined;
      log.warn(`no thread extends leases while handlers block the event loop: ${messageOf(err)}`);
    };
    try {
      this.#thread = new Worker(new URL("./keeper_thread.js", import.meta.url), {
        workerData: { port: port2, connection: connection.options } satisfies Start,
        transferList: [port2],
        execArgv: [], // what they load, such as telemetry, is not for this thread
        env: { ...process.env, NODE_OPTIONS: "" },
      });
      this.#thread.on("error", failed);
      this.#thread.unref();
    } catch (err) { // a bundler has left the module out
      failed(err);
    }
    this.#port.once("message", () => log.debug("a thread keeps the leases")); // when it has been loaded
    this.#port.on("message", (reports: Report[]) => {
      this.#reports.push(...reports);
      heard();
    });
    this.#port.unref();
    void this.#passToken();
  }

  /** Reports whether there is a thread. */
  get works(): boolean {
    return this.#thread !== undefined;
  }

  /** Returns what the thread has reported, also while the event loop was blocked. */
  reports(): Report[] {
    for (let message; (message = receiveMessageOnPort(this.#port)); ) this.#reports.push(...(message.message as Report[]));
    return this.#reports.splice(0);
  }

  hold(lease: Lease): void {
    this.#next.hold.push(lease);
  }

  /** Says that the worker itself has extended a lease. */
  extended(claimToken: string, at: number): void {
    this.#next.extended.push({ claimToken, at });
  }

  drop(claimToken: string): void {
    this.#next.drop.push(claimToken);
  }

  /** Ends the thread. */
  close(): void {
    clearTimeout(this.#renewing);
    this.#port.close();
    void this.#thread?.terminate();
    this.#thread = undefined;
  }

  /** The order to be sent before the event loop goes on. */
  get #next(): Order {
    if (this.#order) return this.#order;
    const order: Order = (this.#order = { hold: [], extended: [], drop: [] });
    queueMicrotask(() => {
      this.#order = undefined;
      if (this.#thread) this.#port.postMessage(order);
    });
    return order;
  }

  /** Passes on the token of a function, which only this thread can call: again and again, since it may take long, and expires. */
  async #passToken(): Promise<void> {
    let next = tokenAge;
    try {
      const token = await this.#connection.token();
      if (token !== undefined && this.#thread) this.#port.postMessage({ hold: [], extended: [], drop: [], token } satisfies Order);
    } catch { // the stream reports it
      next = tokenRetry;
    }
    if (this.#thread) this.#renewing = setTimeout(() => void this.#passToken(), next).unref();
  }
}
