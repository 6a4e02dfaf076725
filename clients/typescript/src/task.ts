/** The tasks of a program: their definitions, and calls that have not been enqueued yet. */

import { encode, show } from "./convert.js";
import { inside, invalid } from "./errors.js";
import type { TaskSpec } from "./gen/pawl/v1/task_pb.js";
import { maxChainDepth } from "./limits.js";
import { isJSON, merge, spec, type TaskOptions } from "./options.js";

/** The parameters of defineTask, in addition to the options of the task. */
export interface Definition<Args> extends TaskOptions {
  /** Converts the decoded payload to the arguments of a handler, for example zod's schema.parse. If it throws, the task is poisoned. */
  parse?: (payload: unknown) => Args;
  /** For a payload that is not JSON. The payload is then a Uint8Array, sent and received unchanged. */
  contentType?: string;
}

/**
 * Defines a task type: the type of its arguments, which are encoded as JSON, and of its result. Programs that enqueue it and programs that
 * run it share the definition.
 *
 *     const welcome = defineTask<{ to: string }, string>("mail.welcome", { queue: "mail" });
 */
export function defineTask<Args = unknown, Result = unknown>(type: string, definition: Definition<Args> = {}): Task<Args, Result> {
  const { parse, contentType = "", ...options } = definition;
  const own = merge({}, options);
  spec(type, new Uint8Array(), contentType, own); // refuses wrong values here, and not when the first task is enqueued
  return new Task<Args, Result>(type, own, contentType, parse);
}

/** A task type, as returned by defineTask. */
export class Task<Args, Result> {
  /** What a handler returns; a type only. */
  declare readonly result: Result;

  constructor(
    readonly type: string,
    readonly options: TaskOptions,
    readonly contentType: string,
    readonly parse: ((payload: unknown) => Args) | undefined,
  ) {}

  /** Returns the task with options that add to, or replace, those of its definition. */
  with(options: TaskOptions): Task<Args, Result> {
    return new Task<Args, Result>(this.type, merge(this.options, options), this.contentType, this.parse);
  }

  /** Describes a task with these arguments, to be enqueued with others. */
  call(args: Args, options: TaskOptions = {}): Call<Result> {
    return new Call<Result>(this.type, this.#encode(args), this.contentType, merge(this.options, options), []);
  }

  #encode(args: Args): Uint8Array {
    if (isJSON(this.contentType)) return encode("payload", args);
    if (!(args instanceof Uint8Array)) throw invalid("payload", `is ${show(args)}; with the content type ${show(this.contentType)} it must be a Uint8Array`);
    return args;
  }
}

/** A task that has not been enqueued yet. */
export class Call<Result = unknown> {
  /** What its handler returns; a type only. */
  declare readonly result: Result;
  /** The length of the longest chain of follow-up tasks after this one. */
  readonly depth: number;

  constructor(
    readonly type: string,
    readonly payload: Uint8Array,
    readonly contentType: string,
    readonly options: TaskOptions,
    readonly followers: readonly Call[],
  ) {
    this.depth = Math.max(0, ...followers.map((call) => 1 + call.depth));
    if (this.depth > maxChainDepth) throw invalid("then", `${this.depth} tasks in a chain, at most ${maxChainDepth} are allowed`);
  }

  /** Returns the call with more options. */
  with(options: TaskOptions): Call<Result> {
    return new Call<Result>(this.type, this.payload, this.contentType, merge(this.options, options), this.followers);
  }

  /**
   * Adds follow-up tasks, which are enqueued when this one succeeds, at the same instant:
   * fetch.call(url).followedBy(resize.call(100).followedBy(mail.call({}))).
   *
   * Their handlers read the result of this task with claim.parentResult. If this task dies, they wait for a replay that succeeds; if it is
   * cancelled or discarded, they are dropped. A task can have at most 8 direct follow-up tasks, and a chain at most 20.
   */
  followedBy(...calls: Call[]): Call<Result> {
    return new Call<Result>(this.type, this.payload, this.contentType, this.options, [...this.followers, ...calls]);
  }
}

/** Returns the request for a call. */
export function specOf(call: Call): TaskSpec {
  if (!(call instanceof Call)) throw new TypeError(`${show(call)} is not a call: task.call(args) makes one of a task`);
  const out = spec(call.type, call.payload, call.contentType, call.options);
  out.then = call.followers.map((follower, at) => inside(`then[${at}]`, () => specOf(follower)));
  return out;
}
