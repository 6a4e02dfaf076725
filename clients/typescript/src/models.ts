/** The results of calls. All of them are read-only. */

import { decodeAs } from "./convert.js";
import type { TaskInfo } from "./data.js";

/** Decodes the payload of a task from JSON; SyntaxError if it is something else. */
export function decodePayload(task: TaskInfo): unknown {
  return decodeAs(`the payload of task ${task.id}`, task.payload, task.contentType);
}

/** Decodes the result of a task from JSON. Returns undefined if it has none; SyntaxError if it is something else. */
export function decodeResult(task: TaskInfo): unknown {
  return decodeAs(`the result of task ${task.id}`, task.result, task.resultContentType);
}
