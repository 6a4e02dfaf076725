/** The errors of this package, one class for each error code of the API. */

import { anyUnpack } from "@bufbuild/protobuf/wkt";
import type { ServiceError } from "@grpc/grpc-js";

import { byCode, byStatus, InternalError, InvalidArgumentError, UnavailableError } from "./codes.js";
import { PawlError, type ErrorDetails } from "./error.js";
import { ErrorSchema, State, type Error as ErrorMessage } from "./gen/pawl/v1/task_pb.js";
import { statusDetails } from "./status.js";

export * from "./codes.js";
export * from "./error.js";

/** A shard or a node that did not answer in time. */
export interface Missing {
  /** Its name; "": it is a shard. */
  readonly node: string;
  readonly shard: number;
  /** What it did instead, such as: did not answer in time. */
  readonly reason: string;
}

/** Ends an iterator over a list, after all items that it has, if some of them may be missing. */
export class IncompleteError extends UnavailableError {
  /** The shards and nodes that did not answer in time. */
  readonly missing: readonly Missing[];

  constructor(missing: readonly [Missing, ...Missing[]]) {
    const [first, ...more] = missing;
    const who = first.node ? `node ${first.node}` : `shard ${first.shard}`;
    super(`the list is incomplete: ${who} ${first.reason}${more.length ? `, and ${more.length} more` : ""}`);
    this.missing = missing;
  }
}

/** The client was closed. */
export class ClientClosedError extends PawlError {
  constructor() {
    super("the client was closed", { code: "client_closed" });
  }
}

/** A wait timed out. */
export class TimeoutError extends PawlError {
  constructor(message?: string, details?: ErrorDetails) {
    super(message, { ...details, code: "timeout" });
  }
}

/** Some tasks of a batch were refused. results has a Ref or a PawlError for each task, in order. */
export class BatchError<T = unknown> extends PawlError {
  constructor(readonly results: readonly (T | PawlError)[]) {
    const at = results.findIndex((result) => result instanceof PawlError);
    const bad = results.filter((result) => result instanceof PawlError);
    const [first] = bad;
    super(`${bad.length} of ${results.length} tasks were not enqueued; item ${at}: ${first?.code}: ${first?.message}`, {
      code: first?.code ?? "",
    });
  }
}

/** Returns the error for a value that this client checks itself. */
export function invalid(field: string, rule: string, cause?: unknown): InvalidArgumentError {
  return new InvalidArgumentError(`${field}: ${rule}`, { field, cause });
}

/** Prefixes the field of an error with a path, as the broker does: delay of tasks[3] is tasks[3].delay. */
export function inside<T>(path: string, make: () => T): T {
  try {
    return make();
  } catch (err) {
    if (!(err instanceof InvalidArgumentError)) throw err;
    throw new InvalidArgumentError(`${path}.${err.message}`, { field: `${path}.${err.field}`, cause: err.cause });
  }
}

/** Returns the error for an error message from the broker. */
export function errorOf(p: ErrorMessage): PawlError {
  const details: ErrorDetails = {
    code: p.code,
    reason: p.reason,
    field: p.field,
    holder: p.holder,
    state: p.state ? (State[p.state] ?? "").toLowerCase() : "",
    retryAfter: p.retryAfter ? Number(p.retryAfter.seconds) * 1000 + p.retryAfter.nanos / 1e6 : 0,
  };
  return new (byCode[p.code] ?? PawlError)(p.message, details);
}

/** Returns the error for a failed call, from the details of its status if it has any. */
export function errorOfCall(err: ServiceError): PawlError {
  for (const data of err.metadata?.get("grpc-status-details-bin") ?? []) {
    const details = typeof data === "string" ? undefined : errorInStatus(data);
    if (details) return errorOf(details);
  }
  return new (byStatus[err.code] ?? InternalError)(err.details || err.message);
}

/** Finds the pawl.v1.Error in a google.rpc.Status. */
function errorInStatus(data: Uint8Array): ErrorMessage | undefined {
  try {
    for (const detail of statusDetails(data)) {
      const found = anyUnpack(detail, ErrorSchema);
      if (found) return found;
    }
  } catch {
    // A proxy may send anything: the gRPC code remains.
  }
  return undefined;
}
