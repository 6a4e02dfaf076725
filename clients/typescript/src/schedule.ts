/** Schedules: what is enqueued again and again, at times of the clock or at an interval. */

import { randomUUID } from "node:crypto";

import { create } from "@bufbuild/protobuf";

import { duration, millisecondsOf, string, timeOf, Words, type Duration } from "./convert.js";
import { inside } from "./errors.js";
import { Missed as MissedEnum, Overlap as OverlapEnum, ScheduleService, ScheduleSpecSchema, TickOutcome } from "./gen/pawl/v1/schedule_pb.js";
import type { Schedule as ScheduleMessage, ScheduleSpec, Tick as TickMessage } from "./gen/pawl/v1/schedule_pb.js";
import type { TaskSpec } from "./gen/pawl/v1/task_pb.js";
import { states } from "./models.js";
import { optionsOf, type TaskOptions } from "./options.js";
import { Ref } from "./ref.js";
import { pages, type Caller } from "./rpc.js";
import { specOf, type Call } from "./task.js";

export type Missed = "once" | "skip" | "all";
export type Overlap = "allow" | "skip";

const missedWords = new Words<Missed>(MissedEnum);
const overlapWords = new Words<Overlap>(OverlapEnum);
const outcomes = new Words<Tick["outcome"] & string>(TickOutcome);

/** When a schedule enqueues. */
export interface ScheduleOptions {
  /** Five fields, six with seconds first, or @daily and its like, on the clock of timeZone. */
  cron?: string;
  /** An IANA name; default UTC. */
  timeZone?: string;
  /** An interval of whole seconds, in place of cron. */
  every?: Duration;
  /** Each tick is late by a part of it. */
  jitter?: Duration;
  /** What becomes of ticks that nobody could fire: once (one task for all of them, the default), skip or all. */
  missed?: Missed;
  /** Of a tick while the task of an earlier one has not ended: allow (the default) or skip. */
  overlap?: Overlap;
  /** What the schedule comes from. */
  owner?: string;
  /** ConflictError if there is another one of this name. */
  createOnly?: boolean;
  /** Tells what would change, and changes nothing. */
  dryRun?: boolean;
  /** ConflictError unless the schedule is there and has this etag, or is as asked already. */
  ifEtag?: string;
}

/** What each tick enqueues. */
export interface ScheduledTask {
  readonly type: string;
  readonly payload: Uint8Array;
  readonly contentType: string;
  readonly options: TaskOptions;
  /** What follows it. */
  readonly then: readonly ScheduledTask[];
}

/** Since when a schedule rests, and why. */
export interface SchedulePause {
  readonly at: Date | undefined;
  readonly reason: string;
  /** As they called themselves; "" if it is not known. */
  readonly by: string;
}

/** An entry of a schedule's history: one tick, or several that were skipped for the same reason. */
export interface Tick {
  readonly seq: number;
  /** Of several the first; undefined for a trigger. */
  readonly plannedAt: Date | undefined;
  /** Of several the last. */
  readonly until: Date | undefined;
  /** How many; 100: or more. */
  readonly count: number;
  readonly decidedAt: Date | undefined;
  readonly outcome: "fired" | "caught_up" | "triggered" | "skipped" | "";
  /** Why it was skipped: missed, paused, overlap, queue_full and others. */
  readonly reason: string;
  /** Its task, or the one that it overlaps; "" if it is on its way to another shard. */
  readonly taskId: string;
  /** Milliseconds from planned to decided. */
  readonly late: number;
}

/** What the broker knows of a schedule. Durations are in milliseconds. */
export interface Schedule {
  /** Of this schedule: another of the same name has another. */
  readonly id: string;
  readonly name: string;
  readonly cron: string;
  readonly timeZone: string;
  readonly every: number;
  readonly jitter: number;
  readonly missed: Missed | "";
  readonly overlap: Overlap | "";
  readonly owner: string;
  readonly task: ScheduledTask;
  readonly createdAt: Date | undefined;
  readonly updatedAt: Date | undefined;
  /** undefined while it is paused. */
  readonly nextRunAt: Date | undefined;
  /** nextRunAt without its jitter. */
  readonly plannedAt: Date | undefined;
  /** Up to four ticks behind plannedAt; not in lists, nor while it is paused. */
  readonly coming: readonly Date[];
  readonly pause: SchedulePause | undefined;
  /** The newest entry of its history. */
  readonly last: Tick | undefined;
  /** Of what put changes: another one if that is different. */
  readonly etag: string;
}

/** What putting a schedule does. */
export interface ScheduleChange {
  readonly change: "created" | "updated" | "unchanged";
  readonly schedule: Schedule;
  /** undefined if there was none. */
  readonly before: Schedule | undefined;
}

/** The schedules of a broker. Methods of one schedule throw NotFoundError if there is none of that name. */
export class Schedules {
  readonly #caller: Caller;

  constructor(caller: Caller) {
    this.#caller = caller;
  }

  /** Gives the same calls in the name of somebody: the server keeps it with what was done. See Admin.withActor. */
  withActor(name: string): Schedules {
    return new Schedules(this.#caller.acting(name));
  }

  /**
   * Makes a schedule what this says, creating it if need be. The same again changes nothing, and a schedule that keeps its times keeps its next
   * tick: call it at each start of a program. call is what each tick enqueues; it may have no delay, runAt, idempotency key or request id.
   */
  async put(name: string, call: Call, options: ScheduleOptions): Promise<ScheduleChange> {
    const { createOnly = false, dryRun = false, ifEtag = "" } = options;
    const request = { spec: scheduleSpec(name, call, options), createOnly, dryRun, ifEtag: string("if_etag", ifEtag) };
    const answer = await this.#caller.call(ScheduleService.method.putSchedule, request);
    const change = answer.change as ScheduleChange["change"];
    return { change, schedule: scheduleOf(answer.schedule), before: answer.before && scheduleOf(answer.before) };
  }

  /** Returns one schedule. */
  async get(name: string): Promise<Schedule> {
    return scheduleOf((await this.#caller.call(ScheduleService.method.getSchedule, { name })).schedule);
  }

  /** Goes over all schedules by name. */
  list(): AsyncGenerator<Schedule, void, undefined> {
    return pages(async (cursor) => {
      const answer = await this.#caller.call(ScheduleService.method.listSchedules, { cursor });
      return { items: answer.items.map(scheduleOf), next: answer.nextCursor };
    });
  }

  /** Removes a schedule with its history. The tasks of its ticks stay. */
  async delete(name: string): Promise<void> {
    await this.#caller.once(ScheduleService.method.deleteSchedule, { name });
  }

  /** Lets ticks pass without a task. When the schedule is resumed, its history notes them. */
  async pause(name: string, reason = ""): Promise<Schedule> {
    return scheduleOf((await this.#caller.call(ScheduleService.method.pauseSchedule, { name, reason })).schedule);
  }

  /** Ends the pause of a schedule. If there is none, that is no error. */
  async resume(name: string): Promise<Schedule> {
    return scheduleOf((await this.#caller.call(ScheduleService.method.resumeSchedule, { name })).schedule);
  }

  /** Enqueues the task of a schedule now, beside its ticks, also while it is paused. */
  async trigger(name: string): Promise<Ref> {
    const answer = await this.#caller.call(ScheduleService.method.triggerSchedule, { name, requestId: randomUUID() });
    return new Ref(this.#caller, answer.taskId, states.word(answer.state));
  }

  /** Goes over the history of a schedule, newest first: its last 1,000 entries. */
  history(name: string): AsyncGenerator<Tick, void, undefined> {
    return pages(async (cursor) => {
      const answer = await this.#caller.call(ScheduleService.method.listScheduleHistory, { name, cursor });
      return { items: answer.items.map(tickOf), next: answer.nextCursor };
    });
  }
}

function scheduleSpec(name: string, call: Call, options: ScheduleOptions): ScheduleSpec {
  const out = create(ScheduleSpecSchema, {
    name: string("name", name),
    cron: string("cron", options.cron ?? ""),
    timeZone: string("time_zone", options.timeZone ?? ""),
    owner: string("owner", options.owner ?? ""),
    task: inside("task", () => specOf(call)),
  });
  if (options.every !== undefined) out.every = duration("every", options.every);
  if (options.jitter !== undefined) out.jitter = duration("jitter", options.jitter);
  if (options.missed !== undefined) out.missed = missedWords.number("missed", options.missed);
  if (options.overlap !== undefined) out.overlap = overlapWords.number("overlap", options.overlap);
  return out;
}

function scheduleOf(p: ScheduleMessage | undefined): Schedule {
  if (!p?.spec?.task) throw new TypeError("the broker answered without a schedule");
  const { name, cron, timeZone, owner, task } = p.spec;
  return {
    id: p.scheduleId,
    name,
    cron,
    timeZone,
    every: millisecondsOf(p.spec.every),
    jitter: millisecondsOf(p.spec.jitter),
    missed: missedWords.word(p.spec.missed),
    overlap: overlapWords.word(p.spec.overlap),
    owner,
    task: scheduledTask(task),
    createdAt: timeOf(p.createdAt),
    updatedAt: timeOf(p.updatedAt),
    nextRunAt: timeOf(p.nextRunAt),
    plannedAt: timeOf(p.nextPlannedAt),
    coming: p.coming.map(timeOf).filter((at) => at !== undefined),
    pause: p.paused ? { at: timeOf(p.pausedAt), reason: p.pausedReason, by: p.pausedBy } : undefined,
    last: p.last && tickOf(p.last),
    etag: p.etag,
  };
}

function scheduledTask(p: TaskSpec): ScheduledTask {
  return { type: p.type, payload: p.payload, contentType: p.contentType, options: optionsOf(p), then: p.then.map(scheduledTask) };
}

function tickOf(p: TickMessage): Tick {
  return {
    seq: Number(p.seq),
    plannedAt: timeOf(p.plannedAt),
    until: timeOf(p.until),
    count: p.count,
    decidedAt: timeOf(p.decidedAt),
    outcome: outcomes.word(p.outcome),
    reason: p.reason,
    taskId: p.taskId,
    late: millisecondsOf(p.late),
  };
}
