/** Groups: tasks that are counted together, and what is enqueued when all have ended. */

import { randomUUID } from "node:crypto";

import { create } from "@bufbuild/protobuf";

import { decodeAs, duration, string, timeOf, Words, type Duration } from "./convert.js";
import { named, traced } from "./enqueue.js";
import { BatchError, errorOf, inside, PawlError } from "./errors.js";
import { CreateGroupRequestSchema, GroupService, GroupState as GroupStateEnum } from "./gen/pawl/v1/group_pb.js";
import type { Group as GroupMessage, GroupCounts as CountsMessage, GroupMember as MemberMessage } from "./gen/pawl/v1/group_pb.js";
import type { EnqueueResult } from "./gen/pawl/v1/producer_pb.js";
import { follower, states, type Follower, type State } from "./models.js";
import { refOf, type Ref } from "./ref.js";
import { pages, type Caller } from "./rpc.js";
import { specOf, type Call } from "./task.js";

export type GroupState = "running" | "complete" | "cancelled";

const groupStates = new Words<GroupState>(GroupStateEnum);

/** A Ref, or why a queue would not take the task, or undefined if it is on its way to its queue. */
export type Made = Ref | PawlError | undefined;

/** How a group is made. */
export interface GroupOptions {
  /** For people: need not be unique. */
  name?: string;
  /** Enqueued when all members have ended, however. Its handler reads the counts with claim.parentResult, as those of the others do. */
  onComplete?: Call;
  /** Enqueued when all have succeeded. */
  onSuccess?: Call;
  /** Enqueued at the first that is dead or poisoned. */
  onDeath?: Call;
  /** The group is not complete before Group.close. */
  open?: boolean;
  /** How long the group is kept once it has ended; by default 24 h, or 14 days if members are dead or poisoned. */
  retention?: Duration;
  /** A UUID; a repeat with it gives the first group again. */
  requestId?: string;
}

/** The members of a group by where they are. */
export interface GroupCounts {
  readonly members: number;
  /** Have not ended. */
  readonly pending: number;
  readonly succeeded: number;
  readonly dead: number;
  readonly poisoned: number;
  readonly discarded: number;
  readonly cancelled: number;
  /** Their queues would not take them. */
  readonly refused: number;
}

/** What the broker knows of a group. Times are undefined if they have not come, or never will. */
export interface GroupInfo {
  readonly id: string;
  readonly name: string;
  readonly state: GroupState | "";
  /** It is not complete before it is closed. */
  readonly open: boolean;
  readonly counts: GroupCounts;
  readonly createdAt: Date | undefined;
  /** When it was complete, or all members of a cancelled one had ended. */
  readonly endedAt: Date | undefined;
  readonly keptUntil: Date | undefined;
  readonly onComplete: Follower | undefined;
  readonly onSuccess: Follower | undefined;
  readonly onDeath: Follower | undefined;
}

/** A member of a group, as the group knows it. */
export interface GroupMember {
  /** "" while it is on its way to its queue, or if it was refused. */
  readonly taskId: string;
  readonly type: string;
  readonly queue: string;
  /** Its end; "" while it has not ended. */
  readonly state: State | "";
  /** Why its queue would not take it: a code, or duplicate. */
  readonly refused: string;
  /** Up to 16 KiB. */
  readonly result: Uint8Array;
  readonly resultContentType: string;
  /** It is larger, or the group keeps 64 MiB already: read it from the task. */
  readonly resultOmitted: boolean;
}

/** Decodes the result of a member from JSON, undefined if it has none; SyntaxError if it is something else. */
export function decodeMemberResult(member: GroupMember): unknown {
  return decodeAs(`the result of task ${member.taskId}`, member.result, member.resultContentType);
}

/** Refers to a group. */
export class Group {
  readonly #caller: Caller;

  constructor(
    caller: Caller,
    readonly id: string,
    /** Of a group that was just made: what became of each of its tasks, in order. */
    readonly tasks: readonly Made[] = [],
    /** The request id stood for this group already. */
    readonly duplicate = false,
  ) {
    this.#caller = caller;
  }

  /** Returns what the broker knows about the group; NotFoundError if it is gone. */
  async info(): Promise<GroupInfo> {
    return groupInfo((await this.#caller.call(GroupService.method.getGroup, { groupId: this.id })).group);
  }

  /**
   * Enqueues up to 1,000 further members, as long as the group is not complete. If some are refused, the others are members nevertheless, and
   * BatchError has the answer for each.
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

  /** Lets an open group be complete when all its members have ended. It may be repeated. */
  async close(): Promise<GroupInfo> {
    return groupInfo((await this.#caller.call(GroupService.method.closeGroup, { groupId: this.id })).group);
  }

  /** Cancels the group with all its members, and drops what it would have enqueued. It may be repeated. WrongStateError if it is complete. */
  async cancel(reason = ""): Promise<GroupInfo> {
    return groupInfo((await this.#caller.call(GroupService.method.cancelGroup, { groupId: this.id, reason })).group);
  }

  /**
   * Goes over the members, with their results: in the order in which the group was made, and behind them those that were added later and what
   * follows members.
   */
  members(): AsyncGenerator<GroupMember, void, undefined> {
    return pages(async (cursor) => {
      const answer = await this.#caller.call(GroupService.method.listGroupMembers, { groupId: this.id, cursor });
      return { items: answer.items.map(memberOf), next: answer.nextCursor };
    });
  }
}

/** Makes a group. */
export async function createGroup(caller: Caller, calls: Iterable<Call>, options: GroupOptions): Promise<Group> {
  const request = create(CreateGroupRequestSchema, {
    name: string("name", options.name ?? ""),
    open: options.open ?? false,
    requestId: string("request_id", options.requestId || randomUUID()),
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

function groupInfo(p: GroupMessage | undefined): GroupInfo {
  if (!p) throw new TypeError("the broker answered without a group");
  return {
    id: p.groupId,
    name: p.name,
    state: groupStates.word(p.state),
    open: p.open,
    counts: countsOf(p.counts),
    createdAt: timeOf(p.createdAt),
    endedAt: timeOf(p.endedAt),
    keptUntil: timeOf(p.keptUntil),
    onComplete: p.onComplete && follower(p.onComplete),
    onSuccess: p.onSuccess && follower(p.onSuccess),
    onDeath: p.onDeath && follower(p.onDeath),
  };
}

function countsOf(p: CountsMessage | undefined): GroupCounts {
  return {
    members: Number(p?.members ?? 0),
    pending: Number(p?.pending ?? 0),
    succeeded: Number(p?.succeeded ?? 0),
    dead: Number(p?.dead ?? 0),
    poisoned: Number(p?.poisoned ?? 0),
    discarded: Number(p?.discarded ?? 0),
    cancelled: Number(p?.cancelled ?? 0),
    refused: Number(p?.refused ?? 0),
  };
}

function memberOf(p: MemberMessage): GroupMember {
  const { taskId, type, queue, refused, result, resultContentType, resultOmitted } = p;
  return { taskId, type, queue, state: states.word(p.state), refused, result, resultContentType, resultOmitted };
}
