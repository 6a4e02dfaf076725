/** Schedules, which enqueue tasks repeatedly, at clock times or at an interval. */

import { randomUUID } from "node:crypto";

import { create } from "@bufbuild/protobuf";

import { duration, known, millisecondsOf, show, string, timeOf, Words, type Duration } from "./convert.js";
import { stateWords, tick, type Tick } from "./data.js";
import { inside } from "./errors.js";
import { Missed as MissedEnum, Overlap as OverlapEnum, ScheduleService, ScheduleSpecSchema } from "./gen/pawl/v1/schedule_pb.js";
import type { Schedule as ScheduleMessage, ScheduleSpec } from "./gen/pawl/v1/schedule_pb.js";
import type { TaskSpec } from "./gen/pawl/v1/task_pb.js";
import { optionsOf, type TaskOptions } from "./options.js";
import { Ref } from "./ref.js";
import { pages, type Caller } from "./rpc.js";
import { Call, specOf } from "./task.js";

export type Missed = "once" | "skip" | "all";
export type Overlap = "allow" | "skip";

const missedWords = new Words<Missed>(MissedEnum);
const overlapWords = new Words<Overlap>(OverlapEnum);

/** When a schedule enqueues its task. */
export interface ScheduleOptions {
  /** Five fields, six with seconds first, or a shorthand such as @daily, evaluated in timeZone. */
  cron?: string;
  /** An IANA name; default UTC. */
  timeZone?: string;
  /** An interval in whole seconds, instead of cron. */
  every?: Duration;
  /** Each tick is delayed by a random part of it. */
  jitter?: Duration;
  /** What happens to ticks that could not fire in time: once (one task for all of them, the default), skip or all. */
  missed?: Missed;
  /** What happens to a tick while the task of an earlier one has not ended: allow (the default) or skip. */
  overlap?: Overlap;
  /** Where the schedule comes from. */
  owner?: string;
  /** ConflictError if a different schedule of this name exists. */
  createOnly?: boolean;
  /** Returns what would change, without changing anything. */
  dryRun?: boolean;
  /** ConflictError unless the schedule exists and still has this etag, or already matches. */
  ifEtag?: string;
}

const scheduleNames = {
  cron: 0,
  timeZone: 0,
  every: 0,
  jitter: 0,
  missed: 0,
  overlap: 0,
  owner: 0,
  createOnly: 0,
  dryRun: 0,
  ifEtag: 0,
} satisfies Record<keyof ScheduleOptions, 0>;

/** The task that every tick enqueues. */
export interface ScheduledTask {
  readonly type: string;
  readonly payload: Uint8Array;
  readonly contentType: string;
  readonly options: TaskOptions;
  /** Its follow-up tasks. */
  readonly then: readonly ScheduledTask[];
}

/** Since when a schedule is paused, and why. */
export interface SchedulePause {
  readonly at: Date | undefined;
  readonly reason: string;
  /** As given by the caller; "" if unknown. */
  readonly by: string;
}

/** What the broker knows about a schedule. Durations are in milliseconds. */
export interface Schedule {
  /** Changes if the schedule is deleted and created again. */
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
  /** undefined while paused. */
  readonly nextRunAt: Date | undefined;
  /** nextRunAt without its jitter. */
  readonly plannedAt: Date | undefined;
  /** Up to four ticks after plannedAt; not in lists, nor while paused. */
  readonly coming: readonly Date[];
  readonly pause: SchedulePause | undefined;
  /** The newest history entry. */
  readonly last: Tick | undefined;
  /** Changes with whatever put can change. */
  readonly etag: string;
}

/** The result of putting a schedule. */
export interface ScheduleChange {
  readonly change: "created" | "updated" | "unchanged";
  readonly schedule: Schedule;
  /** undefined if it did not exist. */
  readonly before: Schedule | undefined;
}

/** The schedules of a broker. Methods for a single schedule throw NotFoundError if there is none of that name. */
export class Schedules {
  readonly #caller: Caller;

  constructor(caller: Caller) {
    this.#caller = caller;
  }

  /** Returns the same calls in the name of an actor, which the server records with what they change. See Admin.withActor. */
  withActor(name: string): Schedules {
    return new Schedules(this.#caller.acting(name));
  }

  /**
   * Creates a schedule, or updates it to match the arguments. If nothing differs, nothing changes, and a schedule whose times don't change
   * keeps its next tick, so a program can call this whenever it starts. call is what each tick enqueues; it can't have a delay, runAt,
   * idempotency key or request id.
   */
  async put(name: string, call: Call, options: ScheduleOptions): Promise<ScheduleChange> {
    if (!(call instanceof Call)) {
      throw new TypeError(`put takes a name, a call and options: put("report", task.call(args), { cron: "@daily" }); ${show(call)} is not a call`);
    }
    known("a schedule", options, scheduleNames, { pattern: "use cron", tz: "use timeZone" });
    const { createOnly = false, dryRun = false, ifEtag } = options;
    const request = { spec: scheduleSpec(name, call, options), createOnly, dryRun, ...(ifEtag !== undefined && { ifEtag: string("if_etag", ifEtag) }) };
    const answer = await this.#caller.call(ScheduleService.method.putSchedule, request);
    const change = answer.change as ScheduleChange["change"];
    return { change, schedule: scheduleOf(answer.schedule), before: answer.before && scheduleOf(answer.before) };
  }

  /** Returns a schedule. */
  async get(name: string): Promise<Schedule> {
    return scheduleOf((await this.#caller.call(ScheduleService.method.getSchedule, { name })).schedule);
  }

  /** Iterates over all schedules, by name. */
  list(): AsyncGenerator<Schedule, void, undefined> {
    return pages(async (cursor) => {
      const answer = await this.#caller.call(ScheduleService.method.listSchedules, { cursor });
      return { items: answer.items.map(scheduleOf), next: answer.nextCursor, missing: answer.missing };
    });
  }

  /** Removes a schedule and its history. Tasks that its ticks enqueued are kept. */
  async delete(name: string): Promise<void> {
    await this.#caller.call(ScheduleService.method.deleteSchedule, { name }, { repeat: false });
  }

  /** Lets ticks pass without enqueueing tasks. They are recorded in the history when the schedule is resumed. */
  async pause(name: string, reason = ""): Promise<Schedule> {
    return scheduleOf((await this.#caller.call(ScheduleService.method.pauseSchedule, { name, reason })).schedule);
  }

  /** Ends the pause of a schedule. It is not an error if the schedule is not paused. */
  async resume(name: string): Promise<Schedule> {
    return scheduleOf((await this.#caller.call(ScheduleService.method.resumeSchedule, { name })).schedule);
  }

  /** Enqueues the task of a schedule now, in addition to its ticks. It also works while the schedule is paused. */
  async trigger(name: string): Promise<Ref> {
    const answer = await this.#caller.call(ScheduleService.method.triggerSchedule, { name, requestId: randomUUID() });
    return new Ref(this.#caller, answer.taskId, stateWords.word(answer.state));
  }

  /** Iterates over the history of a schedule, newest first. The last 1,000 entries are kept. */
  history(name: string): AsyncGenerator<Tick, void, undefined> {
    return pages(async (cursor) => {
      const answer = await this.#caller.call(ScheduleService.method.listScheduleHistory, { name, cursor });
      return { items: answer.items.map(tick), next: answer.nextCursor };
    });
  }
}

function scheduleSpec(name: string, call: Call, options: ScheduleOptions): ScheduleSpec {
  const out = create(ScheduleSpecSchema, {
    name: string("name", name),
    task: inside("task", () => specOf(call)),
  });
  if (options.cron !== undefined) out.cron = string("cron", options.cron);
  if (options.timeZone !== undefined) out.timeZone = string("time_zone", options.timeZone);
  if (options.owner !== undefined) out.owner = string("owner", options.owner);
  if (options.every !== undefined) out.every = duration("every", options.every);
  if (options.jitter !== undefined) out.jitter = duration("jitter", options.jitter);
  if (options.missed !== undefined) out.missed = missedWords.number("missed", options.missed);
  if (options.overlap !== undefined) out.overlap = overlapWords.number("overlap", options.overlap);
  return out;
}

function scheduleOf(p: ScheduleMessage | undefined): Schedule {
  if (!p?.spec?.task) throw new TypeError("the broker answered without a schedule");
  const { name, cron = "", timeZone = "", owner = "", task } = p.spec;
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
    last: p.last && tick(p.last),
    etag: p.etag,
  };
}

function scheduledTask(p: TaskSpec): ScheduledTask {
  return { type: p.type, payload: p.payload, contentType: p.contentType, options: optionsOf(p), then: p.then.map(scheduledTask) };
}
