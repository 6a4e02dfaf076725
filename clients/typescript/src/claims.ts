/**
 * The claims of a worker: which it holds, in which slots they run, when leases are extended, and what to send to the broker. This module
 * decides; the stream carries.
 *
 * Whatever happens to the stream, a claim is kept here from its push until the broker has confirmed its end. A new stream starts with these
 * claims, so a broken one loses nothing.
 */

import { create, isMessage } from "@bufbuild/protobuf";

import { Claim } from "./claim.js";
import type { Holder } from "./claimed.js";
import { clock } from "./clock.js";
import { millisecondsOf } from "./convert.js";
import { fallback, release, sendable, verbOf, type Ending } from "./ending.js";
import { errorOf, InternalError, InvalidArgumentError, PayloadTooLargeError, RateLimitedError, UnavailableError, type PawlError } from "./errors.js";
import type { Progress } from "./gen/pawl/v1/task_pb.js";
import { AckRequestSchema, FailRequestSchema, WorkRequestSchema, type ClaimedTask, type QuietNotice, type Settled, type SettleRequest, type SettleResponse } from "./gen/pawl/v1/worker_pb.js";
import type { WorkHello, WorkRequest } from "./gen/pawl/v1/worker_pb.js";
import { endingFor, interrupt, logEnd, loss, title, type Held, type Verdict } from "./held.js";
import { isWrapped } from "./kept.js";
import { Unreadable } from "./keyring.js";
import type { Keeper } from "./keeper.js";
import { firstResend, maxResend, maxSettle } from "./limits.js";
import type { Logger } from "./log.js";
import { Draining, LeaseLost, TimedOut } from "./outcome.js";
import { Outbox } from "./outbox.js";
import { backoff, type Caller } from "./rpc.js";

const defaultLease = 30_000;
const sweepStep = 50;
const sweepIdle = 3_600_000;
const progressStep = 1000;
const warnStep = 60_000; // between warnings of a blocked event loop

/** Callbacks from the claims. */
export interface Events {
  /** Runs the handler of a claim, and then calls finish. */
  start(held: Held): void;
  /** The stream has something to send. */
  ready(): void;
  /** What there is to send is sent before other work of the event loop, because leases depend on it. */
  flush(): void;
  /** A handler or a claim has ended. */
  calmer(): void;
}

/** The claims of one run of a worker. */
export class Claims {
  readonly #held = new Map<string, Held>();
  #outbox = new Outbox();
  #busy = 0;
  #granted = 0;
  #quiet = false; // the worker is stopping
  #toldQuiet = false;
  #quietVersion = 0n; // of an operator's order; 0 if the worker takes tasks
  #timer: NodeJS.Timeout | undefined;
  #nextSweep = Infinity;
  #block = { length: 0, end: -Infinity }; // the last time that the event loop is known to have been blocked for long
  #nextWarning = -Infinity;
  #yields = false; // a sweep waits until what has arrived is read
  /** What extends leases while the event loop is blocked, if there is something. */
  keeper: Keeper | undefined;

  constructor(
    readonly caller: Caller,
    readonly hello: WorkHello,
    readonly concurrency: number,
    readonly log: Logger,
    readonly events: Events,
  ) {}

  /** The number of running handlers. */
  get busy(): number {
    return this.#busy;
  }

  /** All claims, from their push until the broker has confirmed their end. */
  get all(): Held[] {
    return [...this.#held.values()];
  }

  /** The claims whose end the broker has not confirmed. */
  get unconfirmed(): Held[] {
    return this.all.filter((held) => held.phase === "ended");
  }

  /** Accepts tasks that the broker pushed. */
  accept(tasks: ClaimedTask[], now: number): void {
    for (const task of tasks) {
      this.#granted = Math.max(this.#granted - 1, 0);
      if (this.#held.has(task.claimToken)) continue; // pushed again: it is already running, or its end is on the way
      const held = this.#hold(task, now);
      this.#held.set(task.claimToken, held);
      if (this.#quiet || this.#busy >= this.concurrency) {
        this.#end(held, release(held.name));
        continue;
      }
      this.#busy++;
      this.#keep(held, now);
      this.#sweepAt(Math.min(held.due, held.deadline));
      this.events.start(held);
    }
    this.events.ready();
  }

  #hold(task: ClaimedTask, now: number): Held {
    const lease = millisecondsOf(task.lease) || defaultLease;
    const timeout = millisecondsOf(task.timeout);
    const { encryption } = this.caller;
    const unreadable = encryption ? encryption.openClaimed(task) : withoutKeyring(task);
    const abort = new AbortController();
    const holder: Holder = {
      caller: this.caller,
      setProgress: (progress) => this.#setProgress(held, progress),
      extended: (sent) => this.#extended(held, sent),
      lost: (reason) => this.lose(task.claimToken, reason),
    };
    const held: Held = {
      task,
      name: { taskId: task.taskId, claimToken: task.claimToken },
      claim: new Claim(task, abort.signal, holder),
      abort,
      lease,
      leaseEnd: now + lease,
      due: now + lease / 3,
      deadline: timeout > 0 ? now + timeout : Infinity,
      phase: "running",
      cause: undefined,
      ending: undefined,
      extended: 0,
      unanswered: [],
      progress: undefined,
      tries: 0,
      isFallback: false,
      ended: 0,
      span: undefined,
      unreadable,
    };
    return held;
  }

  #forget(held: Held): void {
    this.#held.delete(held.name.claimToken);
    this.keeper?.drop(held.name.claimToken);
  }

  /** Has the lease of a claim kept until its handler is told to stop, or the broker has confirmed its end. */
  #keep(held: Held, now: number): void {
    if (!this.keeper) return;
    const offset = clock() - now;
    this.keeper.hold({ ...held.name, length: held.lease, from: offset + now, until: offset + held.deadline });
    held.abort.signal.addEventListener("abort", () => this.keeper?.drop(held.name.claimToken), { once: true });
  }

  /** Takes note of what the keeper has heard from the broker. */
  hear(): void {
    const offset = clock() - performance.now();
    for (const report of this.keeper?.reports() ?? []) {
      const held = this.#held.get(report.claimToken);
      if ("lost" in report) this.lose(report.claimToken, report.lost);
      else if (held) this.#extended(held, report.at - offset);
    }
  }

  /** Frees the slot of a handler that has ended, and queues the ending for the broker. */
  finish(held: Held, verdict: Verdict): void {
    this.#busy--;
    const { phase } = held;
    if (phase === "running" || phase === "lapsed") this.#end(held, sendable(held.name, () => this.#endingFor(held, verdict)));
    else if (phase === "lost") this.#forget(held);
    const { ending } = held;
    if (verdict.ok && isMessage(ending, FailRequestSchema)) this.log.warn(`${title(held)}: failed, its result cannot be sent: ${ending.error?.message}`);
    else logEnd(this.log, held, phase, verdict);
    this.events.ready();
    this.events.calmer();
  }

  #endingFor(held: Held, verdict: Verdict): Ending {
    const ending = endingFor(held, verdict);
    if (isMessage(ending, AckRequestSchema)) this.caller.encryption?.sealResult(ending);
    return ending;
  }

  #end(held: Held, ending: Ending): void {
    held.phase = "ended";
    held.ending = ending;
    held.ended = Date.now();
    held.due = 0;
    this.#outbox.add(held);
  }

  /** Handles the broker's report that a claim was lost. */
  lose(token: string, reason: string): void {
    const held = this.#held.get(token);
    if (!held || held.phase === "ended" || held.phase === "lost") return; // the response to its ending says more
    held.phase = "lost";
    const why = reason === "cancelled" ? "" : this.#blocked(held, performance.now());
    interrupt(held, loss(reason, why));
    this.log[reason === "cancelled" ? "info" : "warn"](`${title(held)}: claim lost: ${reason}${why}`);
  }

  // Leases

  #sweepAt(when: number): void {
    if (when >= this.#nextSweep) return;
    this.#nextSweep = when;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#sweep(performance.now()), Math.max(when - performance.now(), 0));
  }

  /**
   * Queues the extensions and resends that are due, and stops handlers whose lease has expired or whose time is up, for all claims. Before a
   * lease expires, it yields once, so that confirmations are read that have arrived. It has yielded for the leases that had expired by then.
   */
  #sweep(now: number, yielded = -Infinity): void {
    if (yielded === -Infinity) this.#noteBlock(now);
    this.hear();
    this.#yields = false;
    const soon = now + sweepStep;
    let at = now + sweepIdle;
    let late = false;
    for (const held of this.#held.values()) {
      if (held.phase === "running" && held.leaseEnd <= now && held.leaseEnd > yielded) late = true;
      else if (held.phase === "running") at = Math.min(at, this.#sweepRunning(held, now, soon));
      else if (held.phase === "ended" && held.due > soon) at = Math.min(at, held.due);
      else if (held.phase === "ended" && held.due > 0) {
        held.due = 0;
        this.#outbox.add(held);
      }
    }
    if (late) { // sockets are read between a timer and what it sets immediately
      this.#yields = true;
      this.#nextSweep = now; // no other is set until then
      this.#timer = setTimeout(() => setImmediate(() => this.#nextSweep > -Infinity && this.#sweep(performance.now(), now)));
    } else {
      this.#nextSweep = Infinity;
      this.#sweepAt(Math.max(at, soon));
    }
    this.events.flush();
  }

  /** Warns if a sweep is so late that the event loop has been blocked for longer than leases can bear. */
  #noteBlock(now: number): void {
    const length = Math.round(now - this.#nextSweep);
    const lease = Math.min(...this.all.filter((held) => held.phase === "running").map((held) => held.lease));
    if (length < lease / 4) return;
    this.#block = { length, end: now };
    if (now < this.#nextWarning || this.keeper?.works) return;
    this.#nextWarning = now + warnStep;
    this.log.warn(
      `the event loop was blocked for ${length} ms or more, so leases of ${lease} ms were not extended: a handler that blocks it for more than a ` +
        "third of a lease may lose the leases of all tasks here. Move such work to worker_threads, or give the worker a longer lease",
    );
  }

  /** Returns the part of a message that says whether a lease was lost because the event loop had been blocked. */
  #blocked(held: Held, now: number): string {
    const { length, end } = this.#block;
    return length >= held.lease / 4 && now - end < held.lease ? `, since the event loop was blocked for ${length} ms or more` : "";
  }

  #lapse(held: Held, now: number): void {
    held.phase = "lapsed";
    const why = this.#blocked(held, now);
    interrupt(held, new LeaseLost(`the lease ended without confirmation by the broker${why}`));
    this.log.warn(`${title(held)}: lease of ${held.lease} ms ended without confirmation by the broker${why}`);
  }

  /** Reports whether the handler of a claim may begin. While others blocked the event loop, its lease may have ended, or it was lost. */
  mayBegin(held: Held, now: number): boolean {
    this.hear();
    if (held.phase === "running" && held.leaseEnd <= now) this.#lapse(held, now);
    return !held.cause;
  }

  #sweepRunning(held: Held, now: number, soon: number): number {
    if (held.leaseEnd <= now) {
      this.#lapse(held, now);
      return Infinity;
    }
    if (held.deadline <= now) interrupt(held, new TimedOut(`timed out after ${millisecondsOf(held.task.timeout)} ms`));
    if (held.cause) return held.leaseEnd; // a handler that continues anyway loses its lease
    if (held.due <= soon) {
      this.#outbox.extends.push(held);
      held.due = now + held.lease / 3;
    }
    return Math.min(held.due, held.leaseEnd, held.deadline);
  }

  /** Sends progress with the next extension, at the latest a second after the previous one. */
  #setProgress(held: Held, progress: Progress): void {
    if (held.phase !== "running") return;
    held.progress = progress;
    held.due = Math.min(held.due, Math.max(performance.now(), held.extended + progressStep));
    this.#sweepAt(held.due);
  }

  /** Records that a request, sent at the given time, extended a lease. */
  #extended(held: Held, sent: number): void {
    if (held.phase !== "running") return;
    held.leaseEnd = Math.max(held.leaseEnd, sent + held.lease);
    held.due = Math.max(held.due, sent + held.lease / 3);
    this.keeper?.extended(held.name.claimToken, sent + clock() - performance.now());
  }

  // The stream

  /**
   * Returns the first frame of a stream. Everything the broker has not confirmed is queued again, and all leases are extended, which shows
   * whether they are still valid.
   */
  attach(now: number): WorkRequest {
    this.#outbox = new Outbox();
    for (const held of this.#held.values()) {
      if (held.phase === "ended" && held.due === 0) this.#outbox.add(held);
      else if (held.phase === "running") {
        held.due = now;
        held.unanswered = [];
        this.#sweepAt(now);
      }
    }
    this.#granted = 0;
    this.#toldQuiet = this.#quiet;
    const hello = { ...this.hello, quietVersion: this.#quietVersion };
    return create(WorkRequestSchema, { hello, quiet: this.#quiet, grant: this.#takes ? this.#grant() : 0 });
  }

  get #takes(): boolean {
    return !this.#quiet && this.#quietVersion === 0n;
  }

  /**
   * Gathers what should be sent to the broker now. Free slots are granted together with the endings that freed them, unless the broker has
   * no others.
   */
  nextFrame(now: number): WorkRequest | undefined {
    const frame = create(WorkRequestSchema);
    const { frame: settle, ready } = this.#outbox.take(now);
    if (settle) frame.settle = settle;
    if (this.#quiet && !this.#toldQuiet) frame.quiet = this.#toldQuiet = true;
    if (this.#takes && (ready || this.#granted === 0)) frame.grant = this.#grant();
    return settle || frame.quiet || frame.grant ? frame : undefined;
  }

  /** Reports whether responses to endings are awaited on the stream. */
  get awaiting(): boolean {
    return this.#outbox.awaiting;
  }

  /** Grants all free slots to the broker, or fewer if too many endings await confirmation. */
  #grant(): number {
    const unsettled = this.#held.size - this.#busy;
    const free = Math.min(this.concurrency - this.#busy - this.#granted, this.concurrency + maxSettle - unsettled);
    const out = Math.max(free, 0);
    this.#granted += out;
    return out;
  }

  /** Handles an operator's order. Slots stay granted: the broker uses them when the worker may take tasks again. */
  setQuiet(notice: QuietNotice): void {
    const was = this.#quietVersion !== 0n;
    this.#quietVersion = notice.quiet ? notice.version || 1n : 0n;
    if (notice.quiet && !was) this.log.info(`an operator has made the worker quiet, it takes no new tasks: ${notice.reason}`);
    else if (was && !notice.quiet) this.log.info("the worker takes tasks again");
    this.events.ready();
  }

  /** Handles the responses to a settle frame. */
  settled(answer: SettleResponse, now: number): void {
    const ends = [...answer.acks, ...answer.fails, ...answer.releases];
    for (const each of ends) {
      this.#outbox.answered(each.taskId);
      const held = this.#held.get(each.claimToken);
      if (held?.phase !== "ended") continue; // answered a second time
      if (each.error) {
        this.#refused(held, errorOf(each.error), now);
        continue;
      }
      this.#forget(held);
      held.span?.settled(verbOf(held.ending), held.task.queue, this.caller.connection.server, held.ended);
    }
    for (const each of answer.extends) this.#answeredExtension(each);
    if (this.#yields && answer.extends.length > 0) this.#extendLate(now);
    this.events.ready();
    this.events.calmer();
  }

  /** Decides what to do with an ending that the broker refused. */
  #refused(held: Held, err: PawlError, now: number): void {
    this.log.warn(`${title(held)}: the broker rejected the task's outcome: ${err.code} ${err.reason}: ${err.message}`);
    if (err instanceof UnavailableError || err instanceof RateLimitedError || err instanceof InternalError) {
      held.due = now + Math.max(backoff(held.tries++, firstResend, maxResend), Math.min(err.retryAfter, maxResend));
      this.#sweepAt(held.due);
    } else if ((err instanceof InvalidArgumentError || err instanceof PayloadTooLargeError) && !held.isFallback && held.ending) {
      held.isFallback = true;
      this.#end(held, fallback(held.name, held.ending, err));
    } else {
      this.#forget(held); // stale or not found: the claim ended some other way, and its handler has worked in vain
      interrupt(held, loss(err.reason || err.code));
    }
  }

  /** Handles the response to one extension. If the broker was unavailable, the next extension is due before the lease ends. */
  #answeredExtension(answer: Settled): void {
    const held = this.#held.get(answer.claimToken);
    // A refusal may overtake the responses to earlier ones, which must not confirm a later time than their own.
    const sent = answer.error ? held?.unanswered.pop() : held?.unanswered.shift();
    const code = answer.error?.code;
    if (code === "stale_claim" || code === "not_found") this.lose(answer.claimToken, answer.error?.reason ?? "");
    else if (held && code === undefined) this.#extended(held, sent ?? 0);
  }

  /** Queues the extensions that were due when the sweep yielded: a handler may block the event loop before the sweep goes on. */
  #extendLate(now: number): void {
    for (const held of this.#held.values()) {
      if (held.phase === "running" && held.leaseEnd > now) this.#sweepRunning(held, now, now + sweepStep);
    }
    this.events.flush();
  }

  // The end

  /** Stops taking tasks. */
  drain(): void {
    this.#quiet = true;
    this.log.info(`draining: ${this.#busy} tasks running`);
    this.events.ready();
  }

  /** Tells all handlers to stop, because the worker is stopping. */
  interruptAll(): void {
    for (const held of this.#held.values()) if (held.phase !== "ended") interrupt(held, new Draining("the worker is stopping"));
  }

  /** Releases the tasks whose handlers do not return. */
  abandon(): void {
    for (const held of this.#held.values()) {
      if (held.phase !== "running" && held.phase !== "lapsed") continue;
      this.#end(held, release(held.name));
      this.log.error(`${title(held)}: the handler does not stop: it is abandoned and its task is released`);
    }
    this.events.ready();
  }

  /** Returns a frame with the endings that the streams left unconfirmed, for a separate call. */
  lastFrame(now: number): SettleRequest | undefined {
    this.#outbox = new Outbox();
    for (const held of this.unconfirmed) this.#outbox.add(held);
    return this.#outbox.take(now).frame;
  }

  /** Stops the timer. */
  close(): void {
    clearTimeout(this.#timer);
    this.#nextSweep = -Infinity;
    this.keeper?.close();
  }
}

/** Returns why a client without a keyring can't pass a task with this checkpoint to its handler. The payload's content type says it itself. */
function withoutKeyring({ checkpoint }: ClaimedTask): Unreadable | undefined {
  return isWrapped(checkpoint) ? new Unreadable("checkpoint: it is encrypted, and the client has no keyring") : undefined;
}
