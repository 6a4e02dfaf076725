/**
 * The operators' calls: queues, dead letters, operations, workers, single tasks, statistics. Schedules are client.schedules.
 *
 *     await client.admin.queues.pause("mail", "the provider is down");
 */

import { randomUUID } from "node:crypto";

import { create } from "@bufbuild/protobuf";

import { duration, show, string, type Duration } from "./convert.js";
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

/** Which tasks of a queue are paused alone: those of a type, or of a key. */
export interface PausedSubset {
  type?: string;
  key?: string;
}

/** What the operators' calls have in common. */
class Calls {
  protected readonly caller: Caller;

  constructor(caller: Caller) {
    this.caller = caller;
  }
}

/** The calls about queues. */
export class Queues extends Calls {
  /** Goes over the queues by name. In the pattern each * stands for any characters. */
  list(pattern = ""): AsyncGenerator<Queue, void, undefined> {
    return pages(async (cursor) => {
      const { items, nextCursor } = await this.caller.call(OperatorService.method.listQueues, { pattern: string("pattern", pattern), cursor });
      return { items: items.map(queueOf), next: nextCursor };
    });
  }

  /** Returns what the broker knows of a queue; NotFoundError if there is none. */
  async get(queue: string): Promise<Queue> {
    return queueOf((await this.caller.call(OperatorService.method.getQueue, { queue: string("queue", queue) })).queue);
  }

  /** Sets the rules of a queue, which is made if it is not there. ConflictError if its settings have another version than ifVersion. */
  async put(queue: string, settings: QueueSettings, options: { ifVersion?: number } = {}): Promise<Queue> {
    const { ifVersion } = options;
    if (ifVersion !== undefined && !Number.isSafeInteger(ifVersion)) throw invalid("if_version", `${show(ifVersion)} is not an integer`);
    const request = { queue: string("queue", queue), settings: write(QueueSettingsSchema, settings, "settings.") };
    const answer = await this.caller.call(OperatorService.method.putQueue, ifVersion === undefined ? request : { ...request, ifVersion: BigInt(ifVersion) });
    return queueOf(answer.queue);
  }

  /** Deletes a queue that has no tasks. */
  async delete(queue: string): Promise<void> {
    await this.caller.call(OperatorService.method.deleteQueue, { queue: string("queue", queue) });
  }

  /** Pauses a queue, or its tasks of a type or a key: it takes tasks, and gives none. Those that run go on. */
  async pause(queue: string, reason = "", of: PausedSubset = {}): Promise<Queue> {
    return queueOf((await this.caller.call(OperatorService.method.pauseQueue, { queue: string("queue", queue), reason: string("reason", reason), ...of })).queue);
  }

  /** Ends a pause. */
  async resume(queue: string, reason = "", of: PausedSubset = {}): Promise<Queue> {
    return queueOf((await this.caller.call(OperatorService.method.resumeQueue, { queue: string("queue", queue), reason: string("reason", reason), ...of })).queue);
  }

  /** Discards what waits in a queue, and returns how many tasks that were. */
  async purge(queue: string, reason = ""): Promise<number> {
    const answer = await this.caller.call(OperatorService.method.purgeQueue, { queue: string("queue", queue), reason: string("reason", reason) });
    return Number(answer.discarded);
  }

  /** Returns what happened in the last 2 minutes, 5 minutes, hour (the default) or 24 hours. */
  async stats(queue: string, window?: Duration): Promise<Stats> {
    const request = { queue: string("queue", queue), ...(window !== undefined && { window: duration("window", window) }) };
    const { stats } = await this.caller.call(StatsService.method.getQueueStats, request);
    return read(StatsSchema, stats ?? create(StatsSchema));
  }
}

/** The calls about dead letters, and about poisoned tasks. */
export class DeadLetters extends Calls {
  /** Groups dead letters by their error, the most frequent first. */
  async groups(queue = "", options: { poisoned?: boolean } = {}): Promise<DeadGroup[]> {
    const { groups } = await this.caller.call(OperatorService.method.groupDead, { queue: string("queue", queue), poisoned: options.poisoned ?? false });
    return groups.map((group) => read<DeadGroup>(DeadGroupSchema, group));
  }

  /** Goes over the dead letters of a queue, which the filter names. */
  list(filter: Filter & { queue: string }): AsyncGenerator<TaskInfo, void, undefined> {
    const wanted = write(FilterSchema, filter, "filter.");
    return pages(async (cursor) => {
      const { items, nextCursor } = await this.caller.call(OperatorService.method.listDead, { filter: wanted, cursor });
      return { items: items.map(taskInfo), next: nextCursor };
    });
  }

  /** Runs dead letters again. rate: so many a second. */
  async replay(queue: string, selection: DeadSelection & { rate?: number }): Promise<{ matched: number; replayed: number }> {
    const { matched, replayed } = await this.caller.call(OperatorService.method.replayDead, write(ReplayDeadRequestSchema, { ...selection, queue }));
    return { matched: Number(matched), replayed: Number(replayed) };
  }

  /** Discards dead letters, which are archived first. */
  async discard(queue: string, selection: DeadSelection): Promise<{ matched: number; discarded: number }> {
    const { matched, discarded } = await this.caller.call(OperatorService.method.discardDead, write(DiscardDeadRequestSchema, { ...selection, queue }));
    return { matched: Number(matched), discarded: Number(discarded) };
  }
}

/** The calls about single tasks. */
export class Tasks extends Calls {
  /** Goes over tasks, newest first, without their payloads. */
  list(filter: Filter = {}): AsyncGenerator<TaskInfo, void, undefined> {
    const wanted = write(FilterSchema, filter, "filter.");
    return pages(async (cursor) => {
      const { items, nextCursor } = await this.caller.call(ProducerService.method.listTasks, { filter: wanted, cursor });
      return { items: items.map(taskInfo), next: nextCursor };
    });
  }

  /** Says why a task is not running. */
  async explain(id: string): Promise<Explanation> {
    return read(ExplainTaskResponseSchema, await this.caller.call(ProducerService.method.explainTask, { taskId: string("task_id", id) }));
  }

  /** Runs a task again that has ended without success. */
  async retry(id: string): Promise<TaskInfo> {
    return taskInfo((await this.caller.call(OperatorService.method.retryTask, { taskId: string("task_id", id) })).task);
  }

  /** Runs a task now that waits for its time. */
  async runNow(id: string): Promise<TaskInfo> {
    return taskInfo((await this.caller.call(OperatorService.method.runTaskNow, { taskId: string("task_id", id) })).task);
  }

  /** Discards a task that waits, or a dead letter. */
  async discard(id: string, reason = ""): Promise<TaskInfo> {
    return taskInfo((await this.caller.call(OperatorService.method.discardTask, { taskId: string("task_id", id), reason: string("reason", reason) })).task);
  }
}

/** The calls about operations, each of which does one thing to many tasks in the background. */
export class Operations extends Calls {
  /** Starts one. requestId: a UUID; a repeat with it gives the first operation again. */
  async start(spec: OperationSpec, reason = "", options: { requestId?: string } = {}): Promise<Operation> {
    const request = { spec: write(OperationSpecSchema, spec, "spec."), reason: string("reason", reason), requestId: options.requestId ?? randomUUID() };
    return operationOf((await this.caller.call(OperationService.method.startOperation, request)).operation);
  }

  /** Returns what the broker knows of one. wait: at most so long, until it does not run any more; up to 60 s. */
  async get(id: string, options: { wait?: Duration } = {}): Promise<Operation> {
    const request = { operationId: string("operation_id", id), ...(options.wait !== undefined && { wait: duration("wait", options.wait) }) };
    return operationOf((await this.caller.call(OperationService.method.getOperation, request)).operation);
  }

  /** Goes over operations, newest first. */
  list(): AsyncGenerator<Operation, void, undefined> {
    return pages(async (cursor) => {
      const { items, nextCursor } = await this.caller.call(OperationService.method.listOperations, { cursor });
      return { items: items.map(operationOf), next: nextCursor };
    });
  }

  /** Lets one rest. */
  async pause(id: string, reason = ""): Promise<Operation> {
    const request = { operationId: string("operation_id", id), reason: string("reason", reason) };
    return operationOf((await this.caller.call(OperationService.method.pauseOperation, request)).operation);
  }

  /** Lets one go on. */
  async resume(id: string, reason = ""): Promise<Operation> {
    const request = { operationId: string("operation_id", id), reason: string("reason", reason) };
    return operationOf((await this.caller.call(OperationService.method.resumeOperation, request)).operation);
  }

  /** Ends one. What is done stays done. */
  async abort(id: string, reason = ""): Promise<Operation> {
    const request = { operationId: string("operation_id", id), reason: string("reason", reason) };
    return operationOf((await this.caller.call(OperationService.method.abortOperation, request)).operation);
  }
}

/** The calls about workers. */
export class Workers extends Calls {
  /** Goes over the workers: those of a queue or a type, those that are lost, or those that are not. */
  list(of: { queue?: string; type?: string; lost?: boolean } = {}): AsyncGenerator<WorkerInfo, void, undefined> {
    return pages(async (cursor) => {
      const { items, nextCursor } = await this.caller.call(WorkerRegistryService.method.listWorkers, { ...of, cursor });
      return { items: items.map((worker) => read<WorkerInfo>(WorkerSchema, worker)), next: nextCursor };
    });
  }

  /** Has a worker take no new tasks, for 1 min to 30 days, by default 24 h. */
  async quiet(id: string, reason = "", options: { for?: Duration } = {}): Promise<WorkerInfo> {
    const request = { workerId: string("worker_id", id), reason: string("reason", reason), ...(options.for !== undefined && { for: duration("for", options.for) }) };
    const { worker } = await this.caller.call(WorkerRegistryService.method.quietWorker, request);
    return read(WorkerSchema, worker ?? create(WorkerSchema));
  }

  /** Has a worker take tasks again. undefined: it is not there now. */
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
   * Gives the same calls in the name of somebody, such as the user of your program: the server keeps it with what was done. It has at most 256
   * characters of ASCII. With tokens, the name of the token counts.
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
