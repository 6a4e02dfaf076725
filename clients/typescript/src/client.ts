/** Client: enqueues tasks and follows them. */

import { Admin } from "./admin.js";
import { Connection, type ConnectionOptions, type TLS } from "./connection.js";
import { known, milliseconds, show, type Duration } from "./convert.js";
import type { PawlEvent } from "./data.js";
import { Encryption } from "./encrypt.js";
import { enqueue, enqueueMany } from "./enqueue.js";
import { inside, invalid } from "./errors.js";
import { watchEvents, type EventFilter } from "./events.js";
import { createGroup, Group, type GroupOptions } from "./group.js";
import type { Keyring } from "./keyring.js";
import type { TaskOptions } from "./options.js";
import { checkWait, Ref, type WaitOptions } from "./ref.js";
import { Caller } from "./rpc.js";
import { Schedules } from "./schedule.js";
import { Call, specOf, Task } from "./task.js";

/** The options of a client. */
export interface ClientOptions extends ConnectionOptions {
  /** How long a call is retried that finds the broker unavailable; default 30 s. */
  retryFor?: Duration;
  /**
   * Encrypts the contents of tasks before they leave the program, and decrypts what it receives: payloads, results, checkpoints and results of
   * once keys. Type, queue, key, tags and headers stay readable, and so do the errors and progress that handlers report.
   */
  keyring?: Keyring;
}

const clientNames = {
  server: 0,
  token: 0,
  namespace: 0,
  tls: 0,
  plaintext: 0,
  retryFor: 0,
  keyring: 0,
} satisfies Record<keyof ClientOptions, 0>;
const tlsNames = { caFile: 0, certFile: 0, keyFile: 0 } satisfies Record<keyof TLS, 0>;
const callers = new WeakMap<Client, Caller>();

/** Returns the caller of a client, for the other parts of this package. */
export function callerOf(client: Client): Caller {
  const caller = callers.get(client);
  if (!caller) throw new TypeError("this is not a Client of this package");
  return caller;
}

/**
 * Enqueues tasks and follows them, over one connection. The first call connects; a connection that breaks is reestablished.
 *
 * What is not given is taken from the environment: PAWL_SERVER, PAWL_TOKEN, PAWL_TOKEN_FILE, PAWL_NAMESPACE, PAWL_TLS_CA, PAWL_CLIENT_CERT
 * and PAWL_CLIENT_KEY. A call that finds the broker unavailable is retried for retryFor. Retries of an enqueue carry the request id of the
 * first attempt, so that they never create a second task.
 */
export class Client {
  readonly #caller: Caller;

  constructor(options?: ClientOptions | string);
  constructor(options: ClientOptions | string | Caller = {}) {
    if (options instanceof Caller) {
      this.#caller = options;
      callers.set(this, options);
      return;
    }
    const given = typeof options === "string" ? { server: options } : options;
    known("a client", given, clientNames, { connection: 'use server: "host:port"' });
    if (given.tls) known("tls", given.tls, tlsNames);
    const connection = new Connection(given);
    const encryption = given.keyring && new Encryption(given.keyring, connection.namespace);
    this.#caller = new Caller(connection, milliseconds("retryFor", given.retryFor ?? 30_000), encryption);
    callers.set(this, this.#caller);
  }

  /**
   * Returns the same client with limits for each of its calls: client.within({ timeout: "2s", signal }).enqueue(…). They also limit the calls of
   * its groups, schedules and admin. For a list, they apply to each page; events end with the signal and have no timeout. The broker may still
   * carry out a call that was given up.
   */
  within(limits: WaitOptions): Client {
    checkWait(limits);
    const timeout = limits.timeout === undefined ? undefined : milliseconds("timeout", limits.timeout);
    if (timeout !== undefined && timeout <= 0) throw invalid("timeout", `is ${timeout} ms, want more than 0`);
    return new (Client as new (caller: Caller) => Client)(this.#caller.bounded({ timeout, signal: limits.signal }));
  }

  /** Enqueues a task. When the promise resolves, the task is on stable storage. */
  enqueue<Args, Result>(task: Task<Args, Result>, args: Args, options?: TaskOptions): Promise<Ref<Result>>;
  enqueue<Result>(call: Call<Result>): Promise<Ref<Result>>;
  async enqueue(what: Task<unknown, unknown> | Call, args?: unknown, options?: TaskOptions): Promise<Ref> {
    if (what instanceof Call) return enqueue(this.#caller, specOf(what));
    if (!(what instanceof Task)) {
      throw new TypeError(`enqueue takes a task and its arguments, enqueue(defineTask("mail"), args), or a call, not ${show(what)}`);
    }
    return enqueue(this.#caller, specOf(what.call(args, options)));
  }

  /**
   * Enqueues many tasks, in as few requests as possible. If some are refused, the others are still enqueued, and BatchError has the result
   * for each.
   */
  enqueueMany<Args, Result>(task: Task<Args, Result>, args: Iterable<Args>): Promise<Ref<Result>[]>;
  enqueueMany<Result>(calls: Iterable<Call<Result>>): Promise<Ref<Result>[]>;
  async enqueueMany(what: Task<unknown, unknown> | Iterable<Call>, args: Iterable<unknown> = []): Promise<Ref[]> {
    const calls = Symbol.iterator in what ? [...what] : [...args].map((each) => what.call(each));
    return enqueueMany(
      this.#caller,
      calls.map((call, at) => inside(`tasks[${at}]`, () => specOf(call))),
    );
  }

  /** Returns a reference to a task by its id. */
  ref<Result = unknown>(id: string): Ref<Result> {
    return new Ref<Result>(this.#caller, id);
  }

  /**
   * Creates a group of up to 1,000 tasks and 8 MiB, all or nothing. Group.tasks has a Ref for each. The handlers of onComplete, onSuccess
   * and onDeath read the counts with claim.parentResult.
   */
  async enqueueGroup(calls: Iterable<Call>, options: GroupOptions = {}): Promise<Group> {
    return createGroup(this.#caller, calls, options);
  }

  /** Returns a reference to a group by its id. */
  group(id: string): Group {
    if (typeof id !== "string") throw new TypeError(`group takes the id of a group, not ${show(id)}: client.enqueueGroup creates one`);
    return new Group(this.#caller, id);
  }

  /** The schedules of the broker, which enqueue tasks repeatedly. */
  get schedules(): Schedules {
    return new Schedules(this.#caller);
  }

  /**
   * Iterates over events as they happen, until the loop ends or the filter's signal is aborted: for await (const event of client.events({
   * kinds: ["task.dead"] })). A stream that breaks is reopened after the last event.
   */
  events(filter: EventFilter = {}): AsyncGenerator<PawlEvent, void, undefined> {
    return watchEvents(this.#caller, filter);
  }

  /** The operators' calls: queues, dead letters, operations, workers, statistics. */
  get admin(): Admin {
    return new Admin(this.#caller);
  }

  /** Ends the calls in flight, and closes the connection. Stop workers first. */
  close(): void {
    this.#caller.close();
  }
}
