/** The handlers that kills.test.ts runs in worker processes. They note each run in a file. */

import { appendFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

import { defineTask, handle } from "../src/index.js";

export const numbers = defineTask<number, number>("note");
export const steps = defineTask<null, string[]>("steps");
export const slow = defineTask<number, string>("slow");

/** Appends a line, in one write. */
function note(text: string): string {
  appendFileSync(process.env["NOTES"] ?? "", `${text}\n`);
  return text;
}

export const handlers = [
  handle(numbers, async (n) => {
    await sleep(10);
    note(String(n));
    return n;
  }),
  handle(steps, async (_, claim) => {
    const first = await claim.step("one", () => note("one"));
    if (claim.attempt === 1) process.kill(process.pid, "SIGKILL"); // behind the first step
    return [first, await claim.step("two", () => note("two"))];
  }),
  handle(slow, async (ms) => {
    note("begins");
    await sleep(ms);
    note("ends");
    return "done";
  }),
];
