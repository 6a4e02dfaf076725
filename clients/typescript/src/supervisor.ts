/** Keeps a number of processes running. */

import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";

import type { Logger } from "./log.js";

const firstPause = 1000; // before an ended process is restarted
const maxPause = 30_000;
const steady = 30_000; // how long a process must run for the next pause to be short again
const killAfter = 10_000; // beyond the drain timeout
const wrongUse = 2;

/** What to keep running. */
export interface Supervised {
  /** The arguments for Node. */
  command: readonly string[];
  processes: number;
  /** In milliseconds. */
  drainTimeout: number;
  logger: Logger;
}

/**
 * Runs a command in several processes. A process that ends is restarted, unless it exited with a usage error. The processes have their own
 * sessions, so that Ctrl-C reaches only the supervisor, and a pipe that closes when the supervisor ends.
 */
export class Supervisor {
  readonly #of: Supervised;
  readonly #running = new Set<ChildProcess>();
  readonly #stop = new AbortController();
  #status = 0;

  constructor(of: Supervised) {
    this.#of = of;
  }

  /** Runs the processes until a signal or a usage error, and returns the exit status. */
  async run(): Promise<number> {
    const signals = ["SIGTERM", "SIGINT"] as const;
    const onSignal = () => (this.#stop.signal.aborted ? this.#signalAll("SIGKILL") : this.#stop.abort()); // a second signal kills them immediately
    for (const name of signals) process.on(name, onSignal);
    const keepers = Array.from({ length: this.#of.processes }, (_, n) => this.#keep(n));
    if (!this.#stop.signal.aborted) await once(this.#stop.signal, "abort");
    this.#signalAll("SIGTERM");
    const over = new AbortController();
    const late = sleep(this.#of.drainTimeout + killAfter, "late", { signal: over.signal }).catch(() => "");
    if ((await Promise.race([Promise.all(keepers), late])) === "late") this.#signalAll("SIGKILL");
    await Promise.all(keepers);
    over.abort();
    for (const name of signals) process.off(name, onSignal);
    return this.#status;
  }

  #signalAll(name: NodeJS.Signals): void {
    for (const child of this.#running) child.kill(name);
  }

  /** Runs one process after the other. */
  async #keep(n: number): Promise<void> {
    let pause = firstPause / 2;
    while (!this.#stop.signal.aborted) {
      const start = performance.now();
      const status = await this.#runOne();
      if (status === wrongUse) this.#stop.abort();
      if (this.#stop.signal.aborted) {
        this.#status ||= typeof status === "number" ? status : 1;
        return;
      }
      pause = performance.now() - start > steady ? firstPause : Math.min(2 * pause, maxPause);
      this.#of.logger.error(`process ${n + 1} of ${this.#of.processes} exited with ${status}, restarting in ${pause} ms`);
      await sleep(pause, undefined, { signal: this.#stop.signal }).catch(() => {});
    }
  }

  async #runOne(): Promise<number | NodeJS.Signals> {
    const child = spawn(process.execPath, this.#of.command, { stdio: ["pipe", "inherit", "inherit"], detached: true });
    this.#running.add(child);
    try {
      const [status, signal] = (await once(child, "exit")) as [number | null, NodeJS.Signals | null];
      return status ?? signal ?? 1;
    } catch {
      return 1; // it could not be started
    } finally {
      this.#running.delete(child);
      child.stdin.destroy();
    }
  }
}

/** Returns a signal that is aborted when the supervisor is gone, however it ended, since the other end of the pipe is then closed. */
export function orphaned(): AbortSignal {
  const out = new AbortController();
  process.stdin.once("close", () => out.abort()).resume();
  return out.signal;
}
