/** The tasks of a program: their definitions, and calls that are not enqueued yet. */

import { encode, show } from "./convert.js";
import { inside, invalid } from "./errors.js";
import type { TaskSpec } from "./gen/pawl/v1/task_pb.js";
import { isJSON, merge, spec, type TaskOptions } from "./options.js";

const maxDepth = 20; // tasks that come one behind the other

/** What defineTask takes beside the options of the task. */
export interface Definition<Args> extends TaskOptions {
  /** Makes the arguments of a handler from the decoded payload. If it throws, the task is poisoned: zod's schema.parse fits, say. */
  parse?: (payload: unknown) => Args;
  /** Of a payload that is not JSON. It is a Uint8Array then, and sent and received as it is. */
  contentType?: string;
}

/**
 * Defines a type of task: the type of its arguments, which are encoded as JSON, and of its result. Programs that enqueue it and programs that
 * run it share the definition.
 *
 *     const welcome = defineTask<{ to: string }, string>("mail.welcome", { queue: "mail" });
 */
export function defineTask<Args = unknown, Result = unknown>(type: string, definition: Definition<Args> = {}): Task<Args, Result> {
  const { parse, contentType = "", ...options } = definition;
  if (!type) throw invalid("type", "is empty");
  return new Task<Args, Result>(type, merge({}, options), contentType, parse);
}

/** A type of task, as defineTask makes it. */
export class Task<Args, Result> {
  /** What a handler returns; a type only. */
  declare readonly result: Result;

  constructor(
    readonly type: string,
    readonly options: TaskOptions,
    readonly contentType: string,
    readonly parse: ((payload: unknown) => Args) | undefined,
  ) {}

  /** Returns the task with options that are added to, or replace, those of its definition. */
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

/** A task that is not enqueued yet. */
export class Call<Result = unknown> {
  /** What its handler returns; a type only. */
  declare readonly result: Result;
  /** How many tasks come one behind the other after this one. */
  readonly depth: number;

  constructor(
    readonly type: string,
    readonly payload: Uint8Array,
    readonly contentType: string,
    readonly options: TaskOptions,
    readonly followers: readonly Call[],
  ) {
    this.depth = Math.max(0, ...followers.map((call) => 1 + call.depth));
    if (this.depth > maxDepth) throw invalid("then", `${this.depth} tasks come one behind the other, at most ${maxDepth} are allowed`);
  }

  /** Returns the call with more options. */
  with(options: TaskOptions): Call<Result> {
    return new Call<Result>(this.type, this.payload, this.contentType, merge(this.options, options), this.followers);
  }

  /**
   * Has other tasks enqueued when this one has succeeded, in the same instant: fetch.call(url).followedBy(resize.call(100).followedBy(mail.call({}))).
   *
   * Their handlers read the result of this one with claim.parentResult. If this task dies, they wait for a replay that succeeds; if it is
   * cancelled or discarded, they are dropped. At most 8 follow one at once, 20 come one behind the other.
   */
  followedBy(...calls: Call[]): Call<Result> {
    return new Call<Result>(this.type, this.payload, this.contentType, this.options, [...this.followers, ...calls]);
  }
}

/** Makes the request for a call. */
export function specOf(call: Call): TaskSpec {
  const out = spec(call.type, call.payload, call.contentType, call.options);
  out.then = call.followers.map((follower, at) => inside(`then[${at}]`, () => specOf(follower)));
  return out;
}
