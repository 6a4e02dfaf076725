/**
 * The operators' calls: queues, dead letters, operations, workers, single tasks, statistics. Schedules are client.schedules.
 *
 *     await client.admin.queues.pause("mail", "the provider is down");
 */

import { randomUUID } from "node:crypto";

import { create } from "@bufbuild/protobuf";

import { duration, milliseconds, show, string, type Duration } from "./convert.js";
import { invalid } from "./errors.js";
import { ExplainTaskResponseSchema } from "./gen/pawl/v1/explain_pb.js";
import { OperationSchema, OperationService, OperationSpecSchema, type Operation as OperationMessage } from "./gen/pawl/v1/operation_pb.js";
import {
  DeadGroupSchema,
  DiscardDeadRequestSchema,
  OperatorService,
  QueueSchema,
  QueueSettingsSchema,
  ReplayDeadRequestSchema,
  type Queue as QueueMessage,
} from "./gen/pawl/v1/operator_pb.js";
import { ProducerService } from "./gen/pawl/v1/producer_pb.js";
import { WorkerRegistryService, WorkerSchema } from "./gen/pawl/v1/worker_registry_pb.js";
import { StatsSchema, StatsService } from "./gen/pawl/v1/stats_pb.js";
import { FilterSchema } from "./gen/pawl/v1/task_pb.js";
import { read, write } from "./messages.js";
import { taskInfo, type TaskInfo } from "./models.js";
import type { DeadGroup, DeadSelection, Explanation, Filter, Operation, OperationSpec, Queue, QueueSettings, Stats, WorkerInfo } from "./operated.js";
import { pages, type Caller } from "./rpc.js";

/** A part of a queue that is paused separately: the tasks of one type or one key. */
export interface PausedSubset {
  type?: string;
  key?: string;
}

// Of calls that would fail after they were done, or do more, if they were made again.
const unrepeated = { repeat: false };

/** The common base of the operators' calls. */
class Calls {
  protected readonly caller: Caller;

  constructor(caller: Caller) {
    this.caller = caller;
  }
}

/** The calls about queues. */
export class Queues extends Calls {
  /** Iterates over all queues by name; missing of each says what its numbers lack. In the pattern, * matches any characters. */
  list(pattern?: string): AsyncGenerator<Queue, void, undefined> {
    return pages(async (cursor) => {
      const { items, nextCursor } = await this.caller.call(OperatorService.method.listQueues, { ...(pattern !== undefined && { pattern: string("pattern", pattern) }), cursor });
      return { items: items.map(queueOf), next: nextCursor };
    });
  }

  /** Returns a queue; NotFoundError if there is none. */
  async get(queue: string): Promise<Queue> {
    return queueOf((await this.caller.call(OperatorService.method.getQueue, { queue: string("queue", queue) })).queue);
  }

  /** Replaces the settings of a queue, creating it if necessary. ConflictError if its settings don't have the version ifVersion. */
  async put(queue: string, settings: QueueSettings, options: { ifVersion?: number } = {}): Promise<Queue> {
    const { ifVersion } = options;
    if (ifVersion !== undefined && !Number.isSafeInteger(ifVersion)) throw invalid("if_version", `${show(ifVersion)} is not an integer`);
    const request = { queue: string("queue", queue), settings: write(QueueSettingsSchema, settings, "settings.") };
    const versioned = ifVersion === undefined ? request : { ...request, ifVersion: BigInt(ifVersion) };
    const answer = await this.caller.call(OperatorService.method.putQueue, versioned, { repeat: ifVersion === undefined });
    return queueOf(answer.queue);
  }

  /** Deletes a queue that has no tasks. */
  async delete(queue: string): Promise<void> {
    await this.caller.call(OperatorService.method.deleteQueue, { queue: string("queue", queue) }, unrepeated);
  }

  /** Pauses a queue, or its tasks of one type or key. New tasks are still accepted, but none can be claimed; running tasks continue. */
  async pause(queue: string, reason = "", of: PausedSubset = {}): Promise<Queue> {
    return queueOf((await this.caller.call(OperatorService.method.pauseQueue, { queue: string("queue", queue), reason: string("reason", reason), ...of })).queue);
  }

  /** Ends a pause. */
  async resume(queue: string, reason = "", of: PausedSubset = {}): Promise<Queue> {
    return queueOf((await this.caller.call(OperatorService.method.resumeQueue, { queue: string("queue", queue), reason: string("reason", reason), ...of })).queue);
  }

  /** Discards the waiting tasks of a queue, and returns how many there were. */
  async purge(queue: string, reason = ""): Promise<number> {
    const answer = await this.caller.call(OperatorService.method.purgeQueue, { queue: string("queue", queue), reason: string("reason", reason) }, unrepeated);
    return Number(answer.discarded);
  }

  /** Returns the statistics of the last 2 minutes, 5 minutes, hour (the default) or 24 hours. */
  async stats(queue: string, window?: Duration): Promise<Stats> {
    const request = { queue: string("queue", queue), ...(window !== undefined && { window: duration("window", window) }) };
    const { stats } = await this.caller.call(StatsService.method.getQueueStats, request);
    return read(StatsSchema, stats ?? create(StatsSchema));
  }
}

/** The calls about dead letters and poisoned tasks. */
export class DeadLetters extends Calls {
  /** Groups dead letters by their error, most frequent first. */
  async groups(queue?: string, options: { poisoned?: boolean } = {}): Promise<DeadGroup[]> {
    const { groups } = await this.caller.call(OperatorService.method.groupDead, { ...(queue !== undefined && { queue: string("queue", queue) }), poisoned: options.poisoned ?? false });
    return groups.map((group) => read<DeadGroup>(DeadGroupSchema, group));
  }

  /** Iterates over the dead letters of the filter's queue. */
  list(filter: Filter & { queue: string }): AsyncGenerator<TaskInfo, void, undefined> {
    const wanted = write(FilterSchema, filter, "filter.");
    return pages(async (cursor) => {
      const { items, nextCursor, missing } = await this.caller.call(OperatorService.method.listDead, { filter: wanted, cursor });
      return { items: items.map(taskInfo), next: nextCursor, missing };
    });
  }

  /** Runs dead letters again. rate: tasks per second. */
  async replay(queue: string, selection: DeadSelection & { rate?: number | string }): Promise<{ matched: number; replayed: number }> {
    const request = write(ReplayDeadRequestSchema, { ...selection, queue });
    const { matched, replayed } = await this.caller.call(OperatorService.method.replayDead, request, { repeat: selection.dryRun === true });
    return { matched: Number(matched), replayed: Number(replayed) };
  }

  /** Discards dead letters after archiving them. */
  async discard(queue: string, selection: DeadSelection): Promise<{ matched: number; discarded: number }> {
    const request = write(DiscardDeadRequestSchema, { ...selection, queue });
    const { matched, discarded } = await this.caller.call(OperatorService.method.discardDead, request, { repeat: selection.dryRun === true });
    return { matched: Number(matched), discarded: Number(discarded) };
  }
}

/** The calls about single tasks. */
export class Tasks extends Calls {
  /** Iterates over tasks, newest first, without their payloads. */
  list(filter: Filter = {}): AsyncGenerator<TaskInfo, void, undefined> {
    const wanted = write(FilterSchema, filter, "filter.");
    return pages(async (cursor) => {
      const { items, nextCursor, missing } = await this.caller.call(ProducerService.method.listTasks, { filter: wanted, cursor });
      return { items: items.map(taskInfo), next: nextCursor, missing };
    });
  }

  /** Returns why a task is not running. */
  async explain(id: string): Promise<Explanation> {
    return read(ExplainTaskResponseSchema, await this.caller.call(ProducerService.method.explainTask, { taskId: string("task_id", id) }));
  }

  /** Runs a task again that has ended without success. */
  async retry(id: string): Promise<TaskInfo> {
    return taskInfo((await this.caller.call(OperatorService.method.retryTask, { taskId: string("task_id", id) }, unrepeated)).task);
  }

  /** Runs a scheduled or retrying task now. */
  async runNow(id: string): Promise<TaskInfo> {
    return taskInfo((await this.caller.call(OperatorService.method.runTaskNow, { taskId: string("task_id", id) }, unrepeated)).task);
  }

  /** Discards a waiting task or a dead letter. */
  async discard(id: string, reason = ""): Promise<TaskInfo> {
    return taskInfo((await this.caller.call(OperatorService.method.discardTask, { taskId: string("task_id", id), reason: string("reason", reason) }, unrepeated)).task);
  }
}

/** The calls about operations, each of which applies one action to many tasks in the background. */
export class Operations extends Calls {
  /** Starts an operation. requestId: a UUID; a retry with it returns the first operation again. */
  async start(spec: OperationSpec, reason = "", options: { requestId?: string } = {}): Promise<Operation> {
    const request = { spec: write(OperationSpecSchema, spec, "spec."), reason: string("reason", reason), requestId: options.requestId ?? randomUUID() };
    return operationOf((await this.caller.call(OperationService.method.startOperation, request)).operation);
  }

  /** Returns an operation. wait: how long to wait for it to stop running, up to 60 s. */
  async get(id: string, options: { wait?: Duration } = {}): Promise<Operation> {
    const wait = milliseconds("wait", options.wait ?? 0);
    const request = { operationId: string("operation_id", id), ...(wait && { wait: duration("wait", wait) }) };
    return operationOf((await this.caller.call(OperationService.method.getOperation, request, { wait })).operation);
  }

  /** Iterates over operations, newest first. */
  list(): AsyncGenerator<Operation, void, undefined> {
    return pages(async (cursor) => {
      const { items, nextCursor } = await this.caller.call(OperationService.method.listOperations, { cursor });
      return { items: items.map(operationOf), next: nextCursor };
    });
  }

  /** Pauses an operation. */
  async pause(id: string, reason = ""): Promise<Operation> {
    const request = { operationId: string("operation_id", id), reason: string("reason", reason) };
    return operationOf((await this.caller.call(OperationService.method.pauseOperation, request)).operation);
  }

  /** Resumes an operation. */
  async resume(id: string, reason = ""): Promise<Operation> {
    const request = { operationId: string("operation_id", id), reason: string("reason", reason) };
    return operationOf((await this.caller.call(OperationService.method.resumeOperation, request)).operation);
  }

  /** Aborts an operation. What it has done is not undone. */
  async abort(id: string, reason = ""): Promise<Operation> {
    const request = { operationId: string("operation_id", id), reason: string("reason", reason) };
    return operationOf((await this.caller.call(OperationService.method.abortOperation, request)).operation);
  }
}

/** The calls about workers. */
export class Workers extends Calls {
  /**
   * Iterates over the workers. queue, type: only workers that take its tasks; lost: only lost workers, or only others. If nodes don't answer,
   * IncompleteError ends it.
   */
  list(of: { queue?: string; type?: string; lost?: boolean } = {}): AsyncGenerator<WorkerInfo, void, undefined> {
    return pages(async (cursor) => {
      const { items, nextCursor, missing } = await this.caller.call(WorkerRegistryService.method.listWorkers, { ...of, cursor });
      return { items: items.map((worker) => read<WorkerInfo>(WorkerSchema, worker)), next: nextCursor, missing };
    });
  }

  /** Stops a worker from taking new tasks, for 1 min to 30 days; default 24 h. */
  async quiet(id: string, reason = "", options: { for?: Duration } = {}): Promise<WorkerInfo> {
    const request = { workerId: string("worker_id", id), reason: string("reason", reason), ...(options.for !== undefined && { for: duration("for", options.for) }) };
    const { worker } = await this.caller.call(WorkerRegistryService.method.quietWorker, request);
    return read(WorkerSchema, worker ?? create(WorkerSchema));
  }

  /** Lets a worker take tasks again. Returns undefined if the worker is gone. */
  async resume(id: string, reason = ""): Promise<WorkerInfo | undefined> {
    const { worker } = await this.caller.call(WorkerRegistryService.method.resumeWorker, { workerId: string("worker_id", id), reason: string("reason", reason) });
    return worker && read(WorkerSchema, worker);
  }
}

/** The operators' calls, by subject. */
export class Admin {
  readonly queues: Queues;
  readonly deadLetters: DeadLetters;
  readonly tasks: Tasks;
  readonly operations: Operations;
  readonly workers: Workers;
  readonly #caller: Caller;

  constructor(caller: Caller) {
    this.#caller = caller;
    this.queues = new Queues(caller);
    this.deadLetters = new DeadLetters(caller);
    this.tasks = new Tasks(caller);
    this.operations = new Operations(caller);
    this.workers = new Workers(caller);
  }

  /**
   * Returns the same calls in the name of an actor, such as the user of your program, which the server records with what they change. A name
   * has at most 256 ASCII characters. If the server uses tokens, the name of the token is recorded instead.
   */
  withActor(name: string): Admin {
    return new Admin(this.#caller.acting(name));
  }
}

function queueOf(p: QueueMessage | undefined): Queue {
  return read(QueueSchema, p ?? create(QueueSchema));
}

function operationOf(p: OperationMessage | undefined): Operation {
  return read(OperationSchema, p ?? create(OperationSchema));
}
