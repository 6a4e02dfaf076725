/** Events of tasks, queues, breakers, schedules and operations, as they happen. */

import { create, fromBinary, toBinary, type MessageInitShape } from "@bufbuild/protobuf";
import type { ClientReadableStream, ServiceError } from "@grpc/grpc-js";

import { string } from "./convert.js";
import { pawlEvent, type PawlEvent } from "./data.js";
import { ClientClosedError, UnavailableError } from "./errors.js";
import { EventService, WatchEventsRequestSchema, WatchEventsResponseSchema } from "./gen/pawl/v1/event_pb.js";
import type { WatchEventsRequest, WatchEventsResponse } from "./gen/pawl/v1/event_pb.js";
import { backoff, listen, pathOf, type Caller } from "./rpc.js";

const firstPause = 50;
const maxPause = 5000;

/** Selects events. All fields that are set must match. */
export interface EventFilter {
  queue?: string;
  /** Of the task, breaker or pause. */
  type?: string;
  taskId?: string;
  /** Any of these, at most 32, such as task.dead; task.* is a whole group. */
  kinds?: readonly string[];
  /** The cursor of the last event seen, to continue after it. Without it, events start when the broker has accepted the call. */
  cursor?: string;
  /** Ends the iteration. */
  signal?: AbortSignal;
}

/**
 * Iterates over events as they happen, until the loop ends or the signal is aborted. A stream that breaks is reopened after the last event.
 * Refusals are thrown.
 */
export async function* watchEvents(caller: Caller, filter: EventFilter): AsyncGenerator<PawlEvent, void, undefined> {
  const { signal } = caller.limits({ signal: filter.signal }); // a stream has no timeout
  let cursor = string("cursor", filter.cursor ?? "");
  for (let attempt = 0; !signal?.aborted; ) {
    try {
      for await (const frame of stream(caller, { ...requestOf(filter), cursor }, signal)) {
        attempt = 0;
        for (const event of frame.events) {
          yield pawlEvent(event);
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

/** Opens one stream, and iterates over its frames. */
async function* stream(
  caller: Caller,
  request: MessageInitShape<typeof WatchEventsRequestSchema>,
  signal: AbortSignal | undefined,
): AsyncGenerator<WatchEventsResponse, void, undefined> {
  const metadata = await caller.within(caller.connection.metadata(), { signal });
  const { channel, turn } = caller.connection.channel();
  const call: ClientReadableStream<WatchEventsResponse> = channel.makeServerStreamRequest(
    pathOf(EventService.method.watchEvents),
    (message: WatchEventsRequest) => Buffer.from(toBinary(WatchEventsRequestSchema, message)),
    (data: Buffer) => fromBinary(WatchEventsResponseSchema, data),
    create(WatchEventsRequestSchema, request),
    metadata,
  );
  const cancel = () => call.cancel();
  const unlisten = listen([signal, caller.ended], cancel);
  call.on("error", () => {}); // the last one may come after the iteration has ended
  try {
    for await (const frame of call) yield frame as WatchEventsResponse;
  } catch (err) {
    throw caller.failed(err as ServiceError, turn);
  } finally {
    unlisten();
    cancel();
  }
}

function requestOf(filter: EventFilter): { queue?: string; type?: string; taskId?: string; kinds: string[] } {
  return {
    ...(filter.queue !== undefined && { queue: string("queue", filter.queue) }),
    ...(filter.type !== undefined && { type: string("type", filter.type) }),
    ...(filter.taskId !== undefined && { taskId: string("task_id", filter.taskId) }),
    kinds: (filter.kinds ?? []).map((kind) => string("kinds", kind)),
  };
}
