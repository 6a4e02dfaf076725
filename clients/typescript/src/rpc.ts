/** Makes calls, and retries them while the broker is unavailable. */

import { setMaxListeners } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";

import { create, fromBinary, toBinary, type DescMessage, type DescMethodUnary, type MessageInitShape, type MessageShape } from "@bufbuild/protobuf";
import { Metadata, status, type Client, type ClientUnaryCall, type ServiceError } from "@grpc/grpc-js";

import type { Connection } from "./connection.js";
import { show } from "./convert.js";
import type { Encryption } from "./encrypt.js";
import { ClientClosedError, errorOfCall, IncompleteError, invalid, PawlError, TimeoutError, UnavailableError, type Missing } from "./errors.js";
import { AccessService } from "./gen/pawl/v1/access_pb.js";
import { firstPause, maxPause } from "./limits.js";
import { Watch } from "./watch.js";

const attemptTime = 10_000; // for an answer, beyond what the server was asked to wait
const maxTimer = 0x7fffffff;
// Retries beyond the budget after a node that was not ready, because the next node may be. After a lost connection, for which no server asks
// to wait, it is one: the calls in flight on a connection are many, and most of their shards have leaders.
const freeTries = 3;

/** How long a call may take. */
export interface CallLimits {
  /** On the clock of performance.now. After it, the call is not retried, and ends with TimeoutError. */
  deadline?: number | undefined;
  /** Ends the call with the signal's reason. */
  signal?: AbortSignal | undefined;
  /** false: a retry would fail after the first call was done, or would do more, so there is none. */
  repeat?: boolean;
  /** How many milliseconds the server is asked to wait before it answers. */
  wait?: number;
}

/** What bounds each call of a caller. */
export interface Bounds {
  /** In milliseconds, with all retries. */
  timeout?: number | undefined;
  signal?: AbortSignal | undefined;
}

/** Makes the calls of one client. */
export class Caller {
  #budget = new RetryBudget();
  #ended = new AbortController();
  #cancels = new Set<() => void>(); // of the calls in flight
  #watches = new WeakMap<Client, Watch>();
  #actor = "";
  #bounds: Bounds = {};
  /** The caller that this one was made of by acting or bounded; by default itself. */
  root: Caller = this;

  /** retryFor: how many milliseconds to retry a call. */
  constructor(
    readonly connection: Connection,
    readonly retryFor: number,
    readonly encryption?: Encryption,
  ) {}

  /** Returns a caller for the same connection whose calls name an actor. */
  acting(actor: string): Caller {
    if (typeof actor !== "string" || !/^[ -~]{1,256}$/.test(actor)) {
      throw invalid("actor", `${show(actor)} is not 1 to 256 characters of printable ASCII`);
    }
    const other = this.#copy();
    other.#actor = actor;
    return other;
  }

  /** Returns a caller for the same connection whose calls are bounded. */
  bounded(bounds: Bounds): Caller {
    const other = this.#copy();
    other.#bounds = bounds;
    return other;
  }

  #copy(): Caller {
    const other = new Caller(this.connection, this.retryFor, this.encryption);
    other.root = this.root;
    other.#budget = this.#budget;
    other.#ended = this.#ended;
    other.#cancels = this.#cancels;
    other.#watches = this.#watches;
    other.#actor = this.#actor;
    other.#bounds = this.#bounds;
    return other;
  }

  /** Returns the limits of a call that begins now. Limits that were returned before stay as they are. */
  limits(given: CallLimits = {}): CallLimits {
    const { timeout, signal } = this.#bounds;
    const out = { ...given };
    if (timeout !== undefined) out.deadline = Math.min(given.deadline ?? Infinity, performance.now() + timeout);
    if (signal && given.signal !== signal) out.signal = given.signal ? AbortSignal.any([given.signal, signal]) : signal;
    return out;
  }

  /** Waits for a promise, but not beyond the limits. What it stands for goes on. */
  async within<T>(promise: Promise<T>, { deadline, signal }: CallLimits): Promise<T> {
    if (deadline === undefined && !signal) return promise;
    const over = new AbortController();
    const left = Math.min(Math.max((deadline ?? Infinity) - performance.now(), 0), maxTimer);
    const late = this.sleep(left, signal, over.signal).then(() => {
      throw new TimeoutError("no answer in time");
    });
    try {
      return await Promise.race([promise, late]);
    } finally {
      late.catch(() => {});
      over.abort();
    }
  }

  /** Makes a call, and retries it while the broker is unavailable: for retryFor, or until the deadline. */
  async call<I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>,
    request: MessageInitShape<I>,
    given: CallLimits = {},
  ): Promise<MessageShape<O>> {
    const limits = this.limits(given);
    if (!this.encryption) return this.#call(method, request, limits);
    const plain = create(method.input, request);
    const answer = await this.#call(method, (await this.sealed(method.input, plain, limits)) as MessageInitShape<I>, limits);
    if (this.encryption.holds(answer)) {
      await this.knowNamespace(limits);
      this.encryption.open(plain, answer);
    }
    return answer;
  }

  /** Makes a call whose request is already encrypted and whose response needs no decryption. Retrying is up to the caller. */
  async attempt<I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>,
    request: MessageInitShape<I>,
    limits: CallLimits = {},
  ): Promise<MessageShape<O>> {
    const answer = await this.once(method, request, limits);
    this.#budget.succeeded();
    return answer;
  }

  /** Encrypts the contents of a message, if the client encrypts. The message itself is not changed. */
  async sealed<S extends DescMessage>(schema: S, message: MessageShape<S>, limits: CallLimits = {}): Promise<MessageShape<S>> {
    if (!this.encryption?.holds(message)) return message;
    await this.knowNamespace(limits);
    return this.encryption.seal(schema, message);
  }

  /** Asks once for the namespace of the client's calls, to which encrypted payloads are bound. */
  async knowNamespace(limits: CallLimits = {}): Promise<void> {
    if (!this.encryption || this.encryption.namespace) return;
    this.encryption.namespace = (await this.#call(AccessService.method.whoAmI, {}, { ...limits, repeat: true })).namespace;
  }

  async #call<I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>,
    request: MessageInitShape<I>,
    limits: CallLimits,
  ): Promise<MessageShape<O>> {
    const start = performance.now();
    for (let attempt = 0; ; attempt++) {
      try {
        const answer = await this.once(method, request, limits);
        this.#budget.succeeded();
        return answer;
      } catch (err) {
        if (!(err instanceof UnavailableError)) throw err;
        const now = performance.now();
        if (limits.deadline !== undefined && now >= limits.deadline) throw new TimeoutError(`no answer in time: ${err.message}`, { cause: err });
        if (limits.repeat === false || now - start >= this.retryFor) throw err;
        await this.pause(attempt, err, limits);
      }
    }
  }

  /** Makes a call without retrying it. */
  async once<I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>,
    request: MessageInitShape<I>,
    limits: CallLimits = {},
  ): Promise<MessageShape<O>> {
    const metadata = await this.within(this.connection.metadata(), limits); // the function that returns the token may hang
    if (this.#actor) metadata.set("pawl-actor", this.#actor);
    const { channel, turn } = this.connection.channel();
    limits.signal?.throwIfAborted();
    // A timeout is all that ends a call that is not retried; the others are tried again, at the next node if there is one.
    const most = limits.repeat === false && limits.deadline !== undefined ? Infinity : attemptTime + (limits.wait ?? 0);
    const left = Math.max(Math.min((limits.deadline ?? Infinity) - performance.now(), most), 1);
    let call: ClientUnaryCall | undefined;
    let hung = false;
    const cancel = () => call?.cancel();
    this.#cancels.add(cancel);
    const ended = this.#watch(channel).add(() => {
      hung = true;
      this.connection.discard(channel);
      cancel();
    });
    const unlisten = listen([limits.signal], cancel);
    try {
      return await new Promise<MessageShape<O>>((resolve, reject) => {
        call = channel.makeUnaryRequest(
          pathOf(method),
          (message: MessageShape<I>) => Buffer.from(toBinary(method.input, message)),
          (data: Buffer) => fromBinary(method.output, data),
          create(method.input, request),
          metadata,
          { deadline: Date.now() + left },
          (err, answer) => (answer === undefined ? reject(err as Error) : resolve(answer)),
        );
      });
    } catch (err) {
      limits.signal?.throwIfAborted();
      if (hung && !this.connection.closed) {
        this.connection.moveOn(turn);
        throw new UnavailableError("the node does not answer");
      }
      throw this.failed(err as ServiceError, turn);
    } finally {
      ended();
      this.#cancels.delete(cancel);
      unlisten();
    }
  }

  #watch(channel: Client): Watch {
    let watch = this.#watches.get(channel);
    if (!watch) this.#watches.set(channel, (watch = new Watch(channel)));
    return watch;
  }

  /** Returns the error for a failed call, and moves on from an address that did not answer. */
  failed(err: Error, turn: number): PawlError {
    if (this.connection.closed) return new ClientClosedError();
    const out = errorOfCall(asServiceError(err));
    if (out instanceof UnavailableError) this.connection.moveOn(turn);
    return out;
  }

  /** Waits before retrying a call that failed with err. Throws TimeoutError if the deadline comes first. */
  async pause(attempt: number, err: PawlError, { deadline, signal }: CallLimits = {}): Promise<void> {
    const notReady = err.reason === "node_not_ready";
    const rest = notReady ? 0 : err.retryAfter;
    let pause = Math.max(backoff(attempt, firstPause, maxPause), rest);
    if (attempt >= freeTries || rest > 0 || (attempt > 0 && !notReady)) pause = Math.max(pause, this.#budget.take(performance.now()));
    await this.sleep(Math.min(pause, Math.max((deadline ?? Infinity) - performance.now(), 0)), signal);
    if (deadline !== undefined && performance.now() >= deadline) throw new TimeoutError(`no answer in time: ${err.message}`, { cause: err });
  }

  /** Waits. The wait ends immediately if the client is closed, or with the reason of a signal. */
  async sleep(ms: number, ...signals: (AbortSignal | undefined)[]): Promise<void> {
    const over = new AbortController();
    const unlisten = listen([...signals, this.#ended.signal], () => over.abort());
    try {
      await sleep(ms, undefined, { signal: over.signal });
    } catch {
      for (const signal of signals) signal?.throwIfAborted();
      throw new ClientClosedError();
    } finally {
      unlisten();
    }
  }

  /** Aborted when the client is closed. */
  get ended(): AbortSignal {
    return this.#ended.signal;
  }

  /** Ends all calls, and all pauses between retries, with ClientClosedError. */
  close(): void {
    this.connection.close();
    this.#ended.abort();
    for (const cancel of this.#cancels) cancel();
  }
}

/**
 * Calls a function once one of the signals is aborted, until the function that listen returns is called. AbortSignal.any would leave a reference
 * behind in a signal that lives longer than the call.
 */
export function listen(signals: (AbortSignal | undefined)[], heard: () => void): () => void {
  for (const signal of signals) {
    if (!signal) continue;
    try {
      setMaxListeners(0, signal); // many calls may share it
    } catch {
      // it is not one of Node's, which warn of many listeners
    }
    signal.addEventListener("abort", heard);
    if (signal.aborted) heard();
  }
  return () => {
    for (const signal of signals) signal?.removeEventListener("abort", heard);
  };
}

/** Returns the path of a method in HTTP/2. */
export function pathOf(method: { parent: { typeName: string }; name: string }): string {
  return `/${method.parent.typeName}/${method.name}`;
}

/**
 * Iterates over a list, a page at a time. page gets the page at a cursor, and the cursor of the next page, which is "" on the last page. If some
 * of the list may be missing, IncompleteError ends it.
 */
export async function* pages<T>(
  page: (cursor: string) => Promise<{ items: readonly T[]; next: string; missing?: readonly Missing[] }>,
): AsyncGenerator<T, void, undefined> {
  const lacking: Missing[] = [];
  for (let cursor = ""; ; ) {
    const { items, next, missing } = await page(cursor);
    yield* items;
    for (const { node, shard, reason } of missing ?? []) {
      if (!lacking.some((known) => known.node === node && known.shard === shard)) lacking.push({ node, shard, reason });
    }
    if (!next) break;
    cursor = next;
  }
  const [first, ...more] = lacking;
  if (first) throw new IncompleteError([first, ...more]);
}

/** Doubles from first up to limit, reduced by a random share of up to a half, so that clients don't reconnect in lockstep. */
export function backoff(attempt: number, first: number, limit: number): number {
  return Math.min(first * 2 ** Math.min(attempt, 16), limit) * (0.5 + Math.random() / 2);
}

/** Errors thrown before a call starts, such as one for a request that cannot be serialized, have no gRPC code. */
function asServiceError(err: Error): ServiceError {
  if ("code" in err && typeof err.code === "number") return err as ServiceError;
  return Object.assign(err, { code: status.INTERNAL, details: err.message, metadata: new Metadata() });
}

/**
 * Paces the retries of all calls of a client, to protect a recovering broker from a retry storm: a burst of ten, then one for every ten
 * successful calls, and in any case five per second.
 */
class RetryBudget {
  static readonly #max = 10;
  static readonly #perSuccess = 0.1;
  static readonly #perSecond = 5;
  #tokens = RetryBudget.#max;
  #last = performance.now();

  succeeded(): void {
    this.#tokens = Math.min(this.#tokens + RetryBudget.#perSuccess, RetryBudget.#max);
  }

  /** Takes one token, and returns how many milliseconds to wait for it. */
  take(now: number): number {
    this.#tokens = Math.min(this.#tokens + ((now - this.#last) / 1000) * RetryBudget.#perSecond, RetryBudget.#max);
    this.#last = now;
    this.#tokens = Math.max(this.#tokens - 1, (-maxPause / 1000) * RetryBudget.#perSecond);
    return Math.max((-this.#tokens / RetryBudget.#perSecond) * 1000, 0);
  }
}
