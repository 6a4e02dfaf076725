/**
 * One run of a worker: it runs the tasks that the link brings in its slots, and ends gracefully.
 *
 *     stream -> link -> claims.accept -> handler -> claims.finish -> outbox -> link -> stream
 */

import { setTimeout as sleep } from "node:timers/promises";

import { Claims } from "./claims.js";
import { Claim } from "./claim.js";
import { encode, JSON_TYPE, messageOf } from "./convert.js";
import type { Result } from "./ending.js";
import { InternalError, InvalidArgumentError, PawlError, UnavailableError } from "./errors.js";
import { WorkerService, type WorkHello } from "./gen/pawl/v1/worker_pb.js";
import type { Handler } from "./handler.js";
import { outcomeOf, type Held, type Verdict } from "./held.js";
import { encryptedWith, Forged, Unreadable } from "./keyring.js";
import { Keeper } from "./keeper.js";
import { Link } from "./link.js";
import type { Logger } from "./log.js";
import { DeadLetter, Poison, Snooze } from "./outcome.js";
import type { Caller } from "./rpc.js";
import { processing } from "./telemetry.js";

const drainGrace = 1000; // for handlers that were told to stop
const settleTimeout = 1000; // for the broker to confirm the last endings, over the stream and then again by a call
const linkTimeout = 4000; // for a stream to end
const restStep = 50;
const notOurs = 30_000; // how long a task without a handler here is snoozed

/** One run of a worker. */
export class Run {
  readonly #caller: Caller;
  readonly #handlers: ReadonlyMap<string, Handler>;
  readonly #drainTimeout: number;
  readonly #worker: string;
  readonly #claims: Claims;
  readonly #link: Link;
  readonly #stopped: Promise<void>;
  #stop!: () => void;
  #waiters: (() => void)[] = []; // waiting for a handler or a claim to end

  constructor(
    caller: Caller,
    hello: WorkHello,
    handlers: ReadonlyMap<string, Handler>,
    settings: { concurrency: number; drainTimeout: number; logger: Logger },
  ) {
    this.#caller = caller;
    this.#handlers = handlers;
    this.#drainTimeout = settings.drainTimeout;
    this.#worker = hello.worker;
    this.#stopped = new Promise((resolve) => (this.#stop = resolve));
    this.#claims = new Claims(caller, hello, settings.concurrency, settings.logger, {
      // Not at once: timers, and so the extensions that are due, run between this and what the handler sets immediately.
      start: (held) => void setImmediate(() => this.#run(held)),
      ready: () => this.#link.ready(),
      flush: () => this.#link.flush(),
      calmer: () => this.#waiters.splice(0).forEach((wake) => wake()),
    });
    this.#link = new Link(caller, this.#claims);
  }

  /** Starts draining. */
  stop(): void {
    this.#stop();
  }

  /** Works until stop is called, and then drains. Throws if the broker refuses the worker. */
  async do(): Promise<void> {
    this.#claims.keeper = new Keeper(this.#caller.connection, this.#claims.log, () => this.#claims.hear());
    const link = this.#link.run().catch((err: unknown) => {
      this.#claims.log.error("the worker has failed:", err);
      return new InternalError(`the worker has failed: ${messageOf(err)}`, { cause: err });
    });
    try {
      const refusal = await Promise.race([this.#stopped, link]);
      this.#claims.drain();
      if (refusal) {
        await this.#giveUp();
        throw refusal;
      }
      await this.#drain(link);
    } finally {
      this.#link.close();
      this.#claims.close();
    }
  }

  async #run(held: Held): Promise<void> {
    let verdict: Verdict;
    const span = processing(held.task, this.#worker, this.#caller.connection.server);
    held.span = span;
    try {
      const result = await span.within(() => this.#handle(held));
      verdict = { ok: true, result: resultOf(held.claim, result) };
    } catch (error) {
      verdict = { ok: false, error };
    }
    const { outcome, failed } = outcomeOf(held, verdict);
    span.processed(outcome, failed && !verdict.ok ? verdict.error : undefined);
    this.#claims.finish(held, verdict);
  }

  async #handle(held: Held): Promise<unknown> {
    const { claim, unreadable } = held;
    if (!this.#claims.mayBegin(held, performance.now())) throw held.cause;
    const handler = this.#handlers.get(claim.type);
    if (!handler) throw new Snooze(notOurs, `no handler for type "${claim.type}"`); // the broker pushed a type that the worker did not ask for
    if (unreadable instanceof Forged) throw new Poison(unreadable.message, { cause: unreadable });
    if (unreadable) throw unreadable; // a failure, not poison: workers with its key may be able to run the task
    const key = encryptedWith(claim.contentType);
    if (key !== undefined) throw new Unreadable(`payload: it is encrypted with key "${key}", and the client has no keyring`);
    return handler.run(claim);
  }

  /** Waits until a condition holds, and reports whether it does. */
  async #until(holds: () => boolean, timeout: number): Promise<boolean> {
    const over = new AbortController();
    const timer = sleep(timeout, true, { signal: over.signal }).catch(() => true);
    let late = false;
    while (!holds() && !late) {
      late = await Promise.race([timer, new Promise<boolean>((resolve) => this.#waiters.push(() => resolve(false)))]);
    }
    over.abort();
    return holds();
  }

  /** Stops the handlers of a worker that the broker rejects. Their tasks run again when their leases have expired. */
  async #giveUp(): Promise<void> {
    this.#claims.interruptAll();
    await this.#until(() => this.#claims.busy === 0, drainGrace);
  }

  /** Ends the run gracefully: no new tasks, handlers finish, the broker confirms. */
  async #drain(link: Promise<unknown>): Promise<void> {
    const idle = () => this.#claims.busy === 0;
    if (!(await this.#until(idle, this.#drainTimeout))) {
      this.#claims.interruptAll();
      if (!(await this.#until(idle, drainGrace))) this.#claims.abandon();
    }
    await this.#until(() => this.#claims.unconfirmed.length === 0, settleTimeout);
    this.#link.close();
    const over = new AbortController();
    await Promise.race([link, sleep(linkTimeout, undefined, { signal: over.signal }).catch(() => {})]);
    over.abort();
    await this.#settleRest();
  }

  /** Sends the endings that the stream left unconfirmed, by separate calls. */
  async #settleRest(): Promise<void> {
    const deadline = performance.now() + settleTimeout;
    for (let frame; (frame = this.#claims.lastFrame(performance.now())); await sleep(restStep)) {
      try {
        this.#claims.settled(await this.#caller.call(WorkerService.method.settle, frame, { deadline }), performance.now());
      } catch (err) {
        if (!(err instanceof PawlError)) throw err;
        const n = this.#claims.unconfirmed.length;
        throw new UnavailableError(`the outcomes of ${n} tasks are unconfirmed, so they may run again: ${err.message}`, { cause: err });
      }
    }
  }
}

/** Encodes a handler's result. If it is not JSON, the task becomes a dead letter, because another run would only return it again. */
function resultOf(claim: Claim, value: unknown): Result {
  if (value === undefined) return claim.rawResult;
  try {
    return { data: encode("result", value), contentType: JSON_TYPE };
  } catch (err) {
    if (!(err instanceof InvalidArgumentError)) throw err;
    throw new DeadLetter(`the handler has run, but its result cannot be kept: ${err.message}`, { cause: err });
  }
}
