/** The error that all others of the API are. */

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
