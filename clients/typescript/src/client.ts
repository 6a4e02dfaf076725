/** Client: enqueues tasks, and follows them. */

import { Admin } from "./admin.js";
import { Connection, type ConnectionOptions } from "./connection.js";
import { milliseconds, type Duration } from "./convert.js";
import { Encryption } from "./encrypt.js";
import { enqueue, enqueueMany } from "./enqueue.js";
import { inside } from "./errors.js";
import { watchEvents, type EventFilter, type PawlEvent } from "./events.js";
import { createGroup, Group, type GroupOptions } from "./group.js";
import type { Keyring } from "./keyring.js";
import type { TaskOptions } from "./options.js";
import { Ref } from "./ref.js";
import { Caller } from "./rpc.js";
import { Schedules } from "./schedule.js";
import { Call, specOf, type Task } from "./task.js";

/** What a client is told. */
export interface ClientOptions extends ConnectionOptions {
  /** How long a call is repeated that finds the broker unavailable; default 30 s. */
  retryFor?: Duration;
  /**
   * Encrypts what tasks hold before it leaves the program, and decrypts what comes: payloads, results, checkpoints and results of once keys. Type,
   * queue, key, tags and headers stay readable, and so does what handlers say of errors and progress.
   */
  keyring?: Keyring;
}

const callers = new WeakMap<Client, Caller>();

/** Returns what makes the calls of a client, for the other parts of this package. */
export function callerOf(client: Client): Caller {
  const caller = callers.get(client);
  if (!caller) throw new TypeError("this is not a Client of this package");
  return caller;
}

/**
 * Enqueues tasks and follows them, over one connection, which the first call opens; one that breaks is made anew.
 *
 * What is not given is taken from the environment: PAWL_SERVER, PAWL_TOKEN, PAWL_TOKEN_FILE, PAWL_NAMESPACE, PAWL_TLS_CA, PAWL_CLIENT_CERT
 * and PAWL_CLIENT_KEY. A call that finds the broker unavailable is repeated for retryFor. Repeats of an enqueue carry the request id of the
 * first try, so that they never make a second task.
 */
export class Client {
  readonly #caller: Caller;

  constructor(options: ClientOptions | string = {}) {
    const given = typeof options === "string" ? { server: options } : options;
    const connection = new Connection(given);
    const encryption = given.keyring && new Encryption(given.keyring, connection.namespace);
    this.#caller = new Caller(connection, milliseconds("retryFor", given.retryFor ?? 30_000), encryption);
    callers.set(this, this.#caller);
  }

  /** Enqueues a task. When the promise is resolved, the task is on stable storage. */
  enqueue<Args, Result>(task: Task<Args, Result>, args: Args, options?: TaskOptions): Promise<Ref<Result>>;
  enqueue<Result>(call: Call<Result>): Promise<Ref<Result>>;
  async enqueue(what: Task<unknown, unknown> | Call, args?: unknown, options?: TaskOptions): Promise<Ref> {
    return enqueue(this.#caller, specOf(what instanceof Call ? what : what.call(args, options)));
  }

  /**
   * Enqueues many tasks, in as few requests as possible. If some are refused, the others are enqueued nevertheless, and BatchError has the
   * answer for each.
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

  /** Refers to a task by its id. */
  ref<Result = unknown>(id: string): Ref<Result> {
    return new Ref<Result>(this.#caller, id);
  }

  /**
   * Makes a group of up to 1,000 tasks and 8 MiB, all or nothing. Group.tasks has a Ref for each. The handlers of onComplete, onSuccess and
   * onDeath read the counts with claim.parentResult.
   */
  async enqueueGroup(calls: Iterable<Call>, options: GroupOptions = {}): Promise<Group> {
    return createGroup(this.#caller, calls, options);
  }

  /** Refers to a group by its id. */
  group(id: string): Group {
    return new Group(this.#caller, id);
  }

  /** The schedules of the broker: what is enqueued again and again. */
  get schedules(): Schedules {
    return new Schedules(this.#caller);
  }

  /**
   * Goes over events as they happen, until the loop is left or the filter's signal aborted: for await (const event of client.events({ kinds:
   * ["task.dead"] })). A stream that breaks is opened again behind the last event.
   */
  events(filter: EventFilter = {}): AsyncGenerator<PawlEvent, void, undefined> {
    return watchEvents(this.#caller, filter);
  }

  /** The operators' calls: queues, dead letters, operations, workers, statistics. */
  get admin(): Admin {
    return new Admin(this.#caller);
  }

  /** Ends the calls that are under way, and the connection. Stop workers first. */
  close(): void {
    this.#caller.close();
  }
}
