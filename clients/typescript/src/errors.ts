/** The errors of this package, one class for each error code of the API. */

import { anyUnpack } from "@bufbuild/protobuf/wkt";
import { status, type ServiceError } from "@grpc/grpc-js";

import { statusDetails } from "./status.js";
import { ErrorSchema, State, type Error as ErrorMessage } from "./gen/pawl/v1/task_pb.js";

/** The details of an error besides its message. */
export interface ErrorDetails {
  code?: string;
  reason?: string;
  field?: string;
  holder?: string;
  state?: string;
  retryAfter?: number;
  cause?: unknown;
}

/** A call was refused by the broker or by this client. Each error code of the API has a subclass. */
export class PawlError extends Error {
  /** Stable: invalid_argument, not_found, conflict and others. */
  readonly code: string;
  /** For StaleClaimError: expired, reclaimed, cancelled or completed. For UnavailableError: node_not_ready, or "". */
  readonly reason: string;
  /** For InvalidArgumentError: the name of the field in the API. */
  readonly field: string;
  /** For StaleClaimError with the reason reclaimed: the worker that holds the task now. */
  readonly holder: string;
  /** For WrongStateError: the state of the task. */
  readonly state: string;
  /** Milliseconds after which a retry may succeed; 0 if unknown. */
  readonly retryAfter: number;

  constructor(message = "", details: ErrorDetails = {}) {
    super(message, details.cause === undefined ? undefined : { cause: details.cause });
    this.name = new.target.name;
    this.code = details.code ?? "";
    this.reason = details.reason ?? "";
    this.field = details.field ?? "";
    this.holder = details.holder ?? "";
    this.state = details.state ?? "";
    this.retryAfter = details.retryAfter ?? 0;
  }
}

/** A value is invalid. field names it. */
export class InvalidArgumentError extends PawlError {
  constructor(message?: string, details?: ErrorDetails) {
    super(message, { ...details, code: "invalid_argument" });
  }
}

/** The token is missing, unknown, expired or revoked. */
export class UnauthenticatedError extends PawlError {
  constructor(message?: string, details?: ErrorDetails) {
    super(message, { ...details, code: "unauthenticated" });
  }
}

/** The token does not allow this. */
export class PermissionDeniedError extends PawlError {
  constructor(message?: string, details?: ErrorDetails) {
    super(message, { ...details, code: "permission_denied" });
  }
}

/** There is no such task, group or schedule. */
export class NotFoundError extends PawlError {
  constructor(message?: string, details?: ErrorDetails) {
    super(message, { ...details, code: "not_found" });
  }
}

/** The idempotency key or request id belongs to a task with another type or payload, or the unique key to another task. */
export class ConflictError extends PawlError {
  constructor(message?: string, details?: ErrorDetails) {
    super(message, { ...details, code: "conflict" });
  }
}

/** The claim is no longer valid; reason says why. */
export class StaleClaimError extends PawlError {
  constructor(message?: string, details?: ErrorDetails) {
    super(message, { ...details, code: "stale_claim" });
  }
}

/** The task's state does not allow this; state has it. */
export class WrongStateError extends PawlError {
  constructor(message?: string, details?: ErrorDetails) {
    super(message, { ...details, code: "wrong_state" });
  }
}

/** The payload or result exceeds the broker's limit. */
export class PayloadTooLargeError extends PawlError {
  constructor(message?: string, details?: ErrorDetails) {
    super(message, { ...details, code: "payload_too_large" });
  }
}

/** The queue holds as many tasks as its settings allow. */
export class QueueFullError extends PawlError {
  constructor(message?: string, details?: ErrorDetails) {
    super(message, { ...details, code: "queue_full" });
  }
}

/** The namespace exceeded its rate limit. */
export class RateLimitedError extends PawlError {
  constructor(message?: string, details?: ErrorDetails) {
    super(message, { ...details, code: "rate_limited" });
  }
}

/** There was no response, even after the client retried the call. The call may or may not have taken effect. */
export class UnavailableError extends PawlError {
  constructor(message?: string, details?: ErrorDetails) {
    super(message, { ...details, code: "unavailable" });
  }
}

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

/** The broker failed. Its log has the reason. */
export class InternalError extends PawlError {
  constructor(message?: string, details?: ErrorDetails) {
    super(message, { ...details, code: "internal" });
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

type ErrorClass = new (message?: string, details?: ErrorDetails) => PawlError;

const byCode: Record<string, ErrorClass> = {
  invalid_argument: InvalidArgumentError,
  unauthenticated: UnauthenticatedError,
  permission_denied: PermissionDeniedError,
  not_found: NotFoundError,
  conflict: ConflictError,
  stale_claim: StaleClaimError,
  wrong_state: WrongStateError,
  payload_too_large: PayloadTooLargeError,
  queue_full: QueueFullError,
  rate_limited: RateLimitedError,
  unavailable: UnavailableError,
  internal: InternalError,
};

/** For errors without details, which come from gRPC itself or from a proxy. */
const byStatus: Partial<Record<status, ErrorClass>> = {
  [status.INVALID_ARGUMENT]: InvalidArgumentError,
  [status.OUT_OF_RANGE]: InvalidArgumentError,
  [status.UNIMPLEMENTED]: InvalidArgumentError,
  [status.UNAUTHENTICATED]: UnauthenticatedError,
  [status.PERMISSION_DENIED]: PermissionDeniedError,
  [status.NOT_FOUND]: NotFoundError,
  [status.ALREADY_EXISTS]: ConflictError,
  [status.FAILED_PRECONDITION]: WrongStateError,
  [status.RESOURCE_EXHAUSTED]: RateLimitedError,
  [status.UNAVAILABLE]: UnavailableError,
  [status.CANCELLED]: UnavailableError, // by the other side: calls that this client cancels have their own error
  [status.DEADLINE_EXCEEDED]: UnavailableError,
  [status.ABORTED]: UnavailableError,
};

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
