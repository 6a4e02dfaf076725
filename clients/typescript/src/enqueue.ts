/** Enqueues tasks: one, or many in as few requests as possible. */

import { randomUUID } from "node:crypto";

import { create, toBinary } from "@bufbuild/protobuf";

import { BatchError, errorOf, InternalError, PawlError, TimeoutError, UnavailableError } from "./errors.js";
import { Gatherer, maxBatchBytes, maxBatchTasks, type Outcome } from "./gather.js";
import { EnqueueBatchRequestSchema, ProducerService, type Enqueued } from "./gen/pawl/v1/producer_pb.js";
import { TaskSpecSchema, type TaskSpec } from "./gen/pawl/v1/task_pb.js";
import { refOf, type Ref } from "./ref.js";
import type { Caller, CallLimits } from "./rpc.js";
import { sending, sendingMany } from "./telemetry.js";

type Answer = Ref | PawlError;

/** Gives a task a request id unless it has one, so that retries never create a second task. */
export function named(task: TaskSpec): TaskSpec {
  task.requestId ??= randomUUID();
  return task;
}

const gatherers = new WeakMap<Caller, Gatherer>();

function gathererOf(caller: Caller): Gatherer {
  let gatherer = gatherers.get(caller);
  if (!gatherer) gatherers.set(caller, (gatherer = new Gatherer((tasks) => sendOnce(caller, tasks, {}))));
  return gatherer;
}

/** Enqueues one task, in one request with other tasks that are enqueued at the same time. */
export async function enqueue(caller: Caller, task: TaskSpec): Promise<Ref> {
  const span = sending(task, caller.connection.server);
  try {
    const ref = refOf(caller, await gathered(caller, named(task)));
    span.answered(ref.id);
    return ref;
  } catch (err) {
    span.end(err);
    throw err;
  }
}

/** Enqueues a task, and retries while its shard or the broker is unavailable. */
async function gathered(caller: Caller, task: TaskSpec): Promise<Enqueued | undefined> {
  const start = performance.now();
  const limits = caller.limits();
  limits.signal?.throwIfAborted();
  const sealed = await caller.sealed(TaskSpecSchema, task, limits); // separately, so that a task that can't be encrypted does not fail the others
  const size = toBinary(TaskSpecSchema, sealed).length;
  for (let attempt = 0; ; attempt++) {
    const outcome = await caller.within(gathererOf(caller.root).enqueue(sealed, size), limits); // others may share the request, so it goes on
    if ("answer" in outcome) return outcome.answer;
    if (!(outcome.error instanceof UnavailableError) || performance.now() - start >= caller.retryFor) throw outcome.error;
    await caller.pause(attempt, outcome.error, limits);
  }
}

/** Sends tasks in one request, without retrying. If the call fails, each task has its error. */
async function sendOnce(caller: Caller, tasks: TaskSpec[], limits: CallLimits): Promise<Outcome[]> {
  try {
    const { results } = await caller.attempt(ProducerService.method.enqueueBatch, { tasks }, limits);
    if (results.length !== tasks.length) throw new InternalError(`a batch of ${tasks.length} tasks got ${results.length} answers`);
    return results.map(({ task, error }) => (error ? { error: errorOf(error) } : { answer: task }));
  } catch (err) {
    if (!(err instanceof PawlError)) throw err;
    return tasks.map(() => ({ error: err }));
  }
}

/** Enqueues tasks. If some are refused, the others are still enqueued, and BatchError has the result for each. */
export async function enqueueMany(caller: Caller, tasks: TaskSpec[]): Promise<Ref[]> {
  const answers: Answer[] = [];
  const limits = caller.limits();
  for (const chunk of chunks(tasks.map(named))) {
    const last = answers.at(-1);
    const gone = last instanceof UnavailableError || last instanceof TimeoutError;
    if (gone) answers.push(...chunk.map(() => last)); // the broker is gone: the rest would only wait as long again
    else answers.push(...(await traced(chunk, caller, () => enqueueChunk(caller, chunk, limits))));
  }
  if (answers.some((answer) => answer instanceof PawlError)) throw new BatchError(answers);
  return answers as Ref[];
}

/** Creates the spans of tasks that are sent together. answers has the result for each. */
export async function traced<T extends Ref | PawlError | undefined>(tasks: TaskSpec[], caller: Caller, send: () => Promise<readonly T[]>): Promise<readonly T[]> {
  const spans = sendingMany(tasks, caller.connection.server);
  try {
    const answers = await send();
    spans.tasks.forEach((span, at) => {
      const answer = answers[at];
      if (answer instanceof PawlError) span.end(answer);
      else span.answered(answer?.id ?? "");
    });
    spans.all.end();
    return answers;
  } catch (err) {
    for (const span of [...spans.tasks, spans.all]) span.end(err);
    throw err;
  }
}

function* chunks(tasks: TaskSpec[]): Generator<TaskSpec[]> {
  let chunk: TaskSpec[] = [];
  let size = 0;
  for (const task of tasks) {
    const n = toBinary(TaskSpecSchema, task).length;
    if (chunk.length > 0 && (chunk.length === maxBatchTasks || size + n > maxBatchBytes)) {
      yield chunk;
      chunk = [];
      size = 0;
    }
    chunk.push(task);
    size += n;
  }
  if (chunk.length > 0) yield chunk;
}

/** Enqueues the tasks of one request. While their shard or the broker is unavailable, they are sent again, with the same request ids. */
async function enqueueChunk(caller: Caller, chunk: TaskSpec[], limits: CallLimits): Promise<Answer[]> {
  const start = performance.now();
  const answers: Answer[] = [];
  let pending = [...chunk.keys()];
  try {
    const { tasks } = await caller.sealed(EnqueueBatchRequestSchema, create(EnqueueBatchRequestSchema, { tasks: chunk }), limits);
    for (let attempt = 0; ; attempt++) {
      const outcomes = await sendOnce(caller, pending.map((at) => tasks[at] as TaskSpec), limits);
      pending.forEach((at, n) => {
        const outcome = outcomes[n] as Outcome;
        answers[at] = "answer" in outcome ? refOf(caller, outcome.answer) : (outcome.error as PawlError);
      });
      pending = pending.filter((at) => answers[at] instanceof UnavailableError);
      const last = pending.at(-1);
      if (last === undefined || performance.now() - start >= caller.retryFor) break;
      await caller.pause(attempt, answers[last] as PawlError, limits);
    }
  } catch (err) { // the deadline has passed, the client was closed, or it can't encrypt the tasks
    if (!(err instanceof PawlError)) throw err;
    for (const at of pending) answers[at] = err;
  }
  return answers;
}
