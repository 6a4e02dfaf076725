/** The handlers that kills.test.ts runs in worker processes. They note each run in a file. */

import { appendFileSync, readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

import { defineTask, handle } from "../src/index.js";

export const numbers = defineTask<number, number>("note");
export const steps = defineTask<null, string[]>("steps");
export const slow = defineTask<number, string>("slow");
export const stray = defineTask<null, string>("stray");

const notes = process.env["NOTES"] ?? "";

/** Appends a line, in one write. */
function note(text: string): string {
  appendFileSync(notes, `${text}\n`);
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
    // Notes say which run is the first. Its attempt does not count if the lease ends while the broker is away, so the next one may have its number.
    if (!readFileSync(notes, "utf8").includes("killed")) {
      note("killed");
      process.kill(process.pid, "SIGKILL");
    }
    return [first, await claim.step("two", () => note("two"))];
  }),
  handle(slow, async (ms) => {
    note("begins");
    await sleep(ms);
    note("ends");
    return "done";
  }),
  handle(stray, async () => {
    void Promise.reject(new Error("nobody handles this"));
    await sleep(300);
    return "done";
  }),
];
