/** Events: what happens to tasks, queues, breakers, schedules and operations, as it happens. */

import { create, fromBinary, toBinary, type MessageInitShape } from "@bufbuild/protobuf";
import type { ClientReadableStream, ServiceError } from "@grpc/grpc-js";

import { string, timeOf } from "./convert.js";
import { ClientClosedError, UnavailableError } from "./errors.js";
import { EventService, WatchEventsRequestSchema, WatchEventsResponseSchema } from "./gen/pawl/v1/event_pb.js";
import type { Event as EventMessage, WatchEventsRequest, WatchEventsResponse } from "./gen/pawl/v1/event_pb.js";
import { states, type State } from "./models.js";
import { backoff, pathOf, type Caller } from "./rpc.js";

const firstPause = 50;
const maxPause = 5000;

/** Which events are wanted. Fields that are set must all match. */
export interface EventFilter {
  queue?: string;
  /** Of the task. */
  type?: string;
  taskId?: string;
  /** Any of these, at most 32: task.dead, say; task.* is all of a sort. */
  kinds?: readonly string[];
  /** Of the last event that was seen: go on behind it. Without one, the events begin when the broker has taken the call. */
  cursor?: string;
  /** Ends the iteration. */
  signal?: AbortSignal;
}

/** Something that happened. What makes no sense for a kind is empty. There is no payload: client.ref(taskId).info() has it. */
export interface PawlEvent {
  /** Such as task.dead; reset: what happened in the shard before is not all known, look at the state afresh. */
  readonly kind: string;
  readonly time: Date | undefined;
  readonly queue: string;
  /** Of a task, or of a breaker. */
  readonly type: string;
  readonly taskId: string;
  /** That the task came to. */
  readonly state: State | "";
  readonly attempt: number;
  readonly worker: string;
  readonly reason: string;
  /** Of a failed attempt, up to 256 bytes. */
  readonly error: string;
  /** Of a schedule. */
  readonly name: string;
  readonly operationId: string;
  /** Ticks that a schedule missed. */
  readonly count: number;
  /** Behind the event. */
  readonly cursor: string;
}

/**
 * Goes over events as they happen, until the loop is left or the signal aborted. A stream that breaks is opened again behind the last event.
 * What was refused is thrown.
 */
export async function* watchEvents(caller: Caller, filter: EventFilter): AsyncGenerator<PawlEvent, void, undefined> {
  const { signal } = filter;
  let cursor = string("cursor", filter.cursor ?? "");
  for (let attempt = 0; !signal?.aborted; ) {
    try {
      for await (const frame of stream(caller, { ...requestOf(filter), cursor }, signal)) {
        attempt = 0;
        for (const event of frame.events) {
          yield eventOf(event);
          cursor = event.cursor || cursor;
        }
        cursor = frame.cursor || cursor;
      }
    } catch (err) {
      if (signal?.aborted) return;
      if (!(err instanceof UnavailableError)) throw err;
    }
    await caller.sleep(backoff(attempt++, firstPause, maxPause), signal).catch((err: unknown) => {
      if (err instanceof ClientClosedError) throw err;
    });
  }
}

/** Opens one stream, and goes over its frames. */
async function* stream(
  caller: Caller,
  request: MessageInitShape<typeof WatchEventsRequestSchema>,
  signal: AbortSignal | undefined,
): AsyncGenerator<WatchEventsResponse, void, undefined> {
  const metadata = await caller.connection.metadata();
  const { channel, turn } = caller.connection.channel();
  const call: ClientReadableStream<WatchEventsResponse> = channel.makeServerStreamRequest(
    pathOf(EventService.method.watchEvents),
    (message: WatchEventsRequest) => Buffer.from(toBinary(WatchEventsRequestSchema, message)),
    (data: Buffer) => fromBinary(WatchEventsResponseSchema, data),
    create(WatchEventsRequestSchema, request),
    metadata,
  );
  const cancel = () => call.cancel();
  const either = signal ? AbortSignal.any([signal, caller.ended]) : caller.ended;
  either.addEventListener("abort", cancel);
  if (either.aborted) cancel();
  call.on("error", () => {}); // the last one may come when nobody iterates any more
  try {
    for await (const frame of call) yield frame as WatchEventsResponse;
  } catch (err) {
    throw caller.failed(err as ServiceError, turn);
  } finally {
    either.removeEventListener("abort", cancel);
    cancel();
  }
}

function requestOf(filter: EventFilter): { queue: string; type: string; taskId: string; kinds: string[] } {
  return {
    queue: string("queue", filter.queue ?? ""),
    type: string("type", filter.type ?? ""),
    taskId: string("task_id", filter.taskId ?? ""),
    kinds: (filter.kinds ?? []).map((kind) => string("kinds", kind)),
  };
}

function eventOf(p: EventMessage): PawlEvent {
  const { kind, queue, type, taskId, attempt, worker, reason, error, name, operationId, cursor } = p;
  const out = { kind, queue, type, taskId, attempt, worker, reason, error, name, operationId, cursor };
  return { ...out, time: timeOf(p.time), state: states.word(p.state), count: Number(p.count) };
}
