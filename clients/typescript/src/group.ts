/** Groups: tasks that are counted together, and the tasks enqueued when all have ended. */

import { randomUUID } from "node:crypto";

import { create } from "@bufbuild/protobuf";

import { decodeAs, duration, known, milliseconds, string, type Duration } from "./convert.js";
import { groupInfo, groupMember, type GroupInfo, type GroupMember } from "./data.js";
import { named, traced } from "./enqueue.js";
import { BatchError, errorOf, inside, PawlError, TimeoutError } from "./errors.js";
import { CreateGroupRequestSchema, GroupService } from "./gen/pawl/v1/group_pb.js";
import type { EnqueueResult } from "./gen/pawl/v1/producer_pb.js";
import { checkWait, refOf, waitSlack, type Ref, type WaitOptions } from "./ref.js";
import { backoff, pages, type Caller } from "./rpc.js";
import { specOf, type Call } from "./task.js";

/** A Ref, or the error if a queue refused the task, or undefined if it is on its way to its queue. */
export type Made = Ref | PawlError | undefined;

/** The options of a group. */
export interface GroupOptions {
  /** For display, need not be unique. */
  name?: string;
  /**
   * Enqueued when all members have ended, in whatever state. Its handler, like those of the others, reads the counts with
   * claim.parentResult.
   */
  onComplete?: Call;
  /** Enqueued when all have succeeded. */
  onSuccess?: Call;
  /** Enqueued when the first is dead or poisoned. */
  onDeath?: Call;
  /** The group can't be complete until Group.close. */
  open?: boolean;
  /** How long the group is kept once it has ended; by default 24 h, or 14 days if members are dead or poisoned. */
  retention?: Duration;
  /** A UUID; a retry with it returns the first group again. */
  requestId?: string;
}

const groupNames = {
  name: 0,
  onComplete: 0,
  onSuccess: 0,
  onDeath: 0,
  open: 0,
  retention: 0,
  requestId: 0,
} satisfies Record<keyof GroupOptions, 0>;

/** Decodes the result of a member from JSON. Returns undefined if it has none; SyntaxError if it is something else. */
export function decodeMemberResult(member: GroupMember): unknown {
  return decodeAs(`the result of task ${member.taskId}`, member.result, member.resultContentType);
}

/** A reference to a group. */
export class Group {
  readonly #caller: Caller;

  constructor(
    caller: Caller,
    readonly id: string,
    /** For a group that was just created: the result for each of its tasks, in order. */
    readonly tasks: readonly Made[] = [],
    /** An earlier call with the same request id created the group. */
    readonly duplicate = false,
  ) {
    this.#caller = caller;
  }

  /** Returns what the broker knows about the group; NotFoundError if it is gone. */
  async info(): Promise<GroupInfo> {
    return groupInfo((await this.#caller.call(GroupService.method.getGroup, { groupId: this.id })).group);
  }

  /**
   * Waits until the group has ended: it is complete, or it was cancelled and all its members have ended. It asks the broker repeatedly.
   */
  async waitEnded(options: WaitOptions = {}): Promise<GroupInfo> {
    checkWait(options);
    const timeout = options.timeout === undefined ? Infinity : milliseconds("timeout", options.timeout);
    const deadline = performance.now() + timeout;
    const limits = this.#caller.limits({ signal: options.signal, deadline: deadline === Infinity ? undefined : deadline + waitSlack });
    for (let attempt = 0; ; attempt++) {
      const info = groupInfo((await this.#caller.call(GroupService.method.getGroup, { groupId: this.id }, limits)).group);
      if (info.endedAt) return info;
      const left = deadline - performance.now();
      if (left <= 0) throw new TimeoutError(`group ${this.id} has not ended after ${timeout} ms: ${info.counts.pending} tasks are pending`);
      await this.#caller.sleep(Math.min(backoff(attempt, 50, 1000), left), limits.signal);
    }
  }

  /**
   * Enqueues up to 1,000 further members, as long as the group is not complete. If some are refused, the others still become members, and
   * BatchError has the result for each.
   */
  async add(calls: Iterable<Call>): Promise<readonly Made[]> {
    const tasks = [...calls].map((call, at) => inside(`tasks[${at}]`, () => named(specOf(call))));
    const made = await traced(tasks, this.#caller, async () => {
      const answer = await this.#caller.call(GroupService.method.addGroupTasks, { groupId: this.id, tasks });
      return answer.results.map((result) => madeOf(this.#caller, result));
    });
    if (made.some((each) => each instanceof PawlError)) throw new BatchError(made);
    return made;
  }

  /** Closes an open group, which is then complete when all its members have ended. It is safe to retry. */
  async close(): Promise<GroupInfo> {
    return groupInfo((await this.#caller.call(GroupService.method.closeGroup, { groupId: this.id })).group);
  }

  /**
   * Cancels the group and all its members, and drops the tasks it would have enqueued. It is safe to retry. WrongStateError if the group is
   * complete.
   */
  async cancel(reason = ""): Promise<GroupInfo> {
    return groupInfo((await this.#caller.call(GroupService.method.cancelGroup, { groupId: this.id, reason })).group);
  }

  /**
   * Iterates over the members, with their results, in the order in which the group was created; members that were added later and follow-up
   * tasks of members come after them.
   */
  members(): AsyncGenerator<GroupMember, void, undefined> {
    return pages(async (cursor) => {
      const answer = await this.#caller.call(GroupService.method.listGroupMembers, { groupId: this.id, cursor });
      return { items: answer.items.map(groupMember), next: answer.nextCursor };
    });
  }
}

/** Creates a group. */
export async function createGroup(caller: Caller, calls: Iterable<Call>, options: GroupOptions): Promise<Group> {
  known("a group", options, groupNames);
  const request = create(CreateGroupRequestSchema, {
    name: string("name", options.name ?? ""),
    open: options.open ?? false,
    requestId: string("request_id", options.requestId ?? randomUUID()),
    tasks: [...calls].map((call, at) => inside(`tasks[${at}]`, () => specOf(call))),
  });
  const { onComplete, onSuccess, onDeath } = options;
  if (options.retention !== undefined) request.retention = duration("retention", options.retention);
  if (onComplete) request.onComplete = inside("on_complete", () => specOf(onComplete));
  if (onSuccess) request.onSuccess = inside("on_success", () => specOf(onSuccess));
  if (onDeath) request.onDeath = inside("on_death", () => specOf(onDeath));
  let out: Group | undefined;
  await traced(request.tasks, caller, async () => {
    const answer = await caller.call(GroupService.method.createGroup, request);
    const made = answer.tasks.map((result) => madeOf(caller, result));
    out = new Group(caller, answer.group?.groupId ?? "", made, answer.duplicate);
    return made;
  });
  return out as Group;
}

function madeOf(caller: Caller, p: EnqueueResult): Made {
  if (p.error) return errorOf(p.error);
  return p.task?.taskId ? refOf(caller, p.task) : undefined;
}
