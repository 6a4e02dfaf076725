/** For tests: a real broker, started from the pawl binary on its own directory, and a worker. */

import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { closeSync, openSync, readFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer, type AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

import type { Client } from "./client.js";
import type { Handler } from "./handler.js";
import { Worker, type WorkerOptions } from "./worker.js";

const startTimeout = 30_000;
const stopTimeout = 15_000;

/** The options of a broker. */
export interface BrokerOptions {
  /** The program; by default $PAWL_BINARY, or else pawl on the PATH. */
  binary?: string;
  /** The flags of pawl serve. */
  flags?: readonly string[];
}

/** A pawl serve process. It keeps its address and its data when it is killed and restarted. */
export class Broker {
  readonly #binary: string;
  readonly #flags: readonly string[];
  readonly #directory: string;
  readonly #port: number;
  #process: ChildProcess | undefined;

  private constructor(options: BrokerOptions, directory: string, port: number) {
    this.#binary = options.binary ?? (process.env["PAWL_BINARY"] || "pawl");
    this.#flags = options.flags ?? [];
    this.#directory = directory;
    this.#port = port;
  }

  /** Starts a broker, and returns when it is serving. */
  static async start(options: BrokerOptions = {}): Promise<Broker> {
    const broker = new Broker(options, await mkdtemp(join(tmpdir(), "pawl-test-")), await freePort());
    try {
      await broker.start();
    } catch (err) {
      await broker.close();
      throw err;
    }
    return broker;
  }

  /** The address of the broker, for Client. */
  get address(): string {
    return `127.0.0.1:${this.#port}`;
  }

  /** Restarts the broker after it was stopped or killed, and returns when it is serving. */
  async start(): Promise<void> {
    if (this.#process) throw new Error("the broker is already running");
    const log = openSync(this.#logFile, "a");
    const data = join(this.#directory, "data");
    const child = spawn(this.#binary, ["serve", "--data", data, "--listen", this.address, ...this.#flags], { stdio: ["ignore", "pipe", log] });
    closeSync(log);
    let said = "";
    child.stdout?.setEncoding("utf8").on("data", (text: string) => (said += text));
    this.#process = child;
    let failure: Error | undefined;
    child.once("error", (err) => (failure = err));
    for (const end = performance.now() + startTimeout; !said.includes("ready"); await sleep(10)) {
      if (failure === undefined && child.exitCode === null && performance.now() < end) continue;
      const why = failure === undefined ? this.log() : `${failure.message}: install pawl, or name the binary in PAWL_BINARY`;
      await this.kill();
      throw new Error(`the broker did not start: ${why.slice(-2000)}`);
    }
  }

  /** Stops the broker gracefully. */
  stop(): Promise<void> {
    return this.#end("SIGTERM");
  }

  /** Kills the broker, as a crash would. */
  kill(): Promise<void> {
    return this.#end("SIGKILL");
  }

  async #end(how: NodeJS.Signals): Promise<void> {
    const child = this.#process;
    this.#process = undefined;
    if (!child || child.pid === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const exit = once(child, "exit");
    child.kill(how);
    const timer = setTimeout(() => child.kill("SIGKILL"), stopTimeout);
    await exit;
    clearTimeout(timer);
  }

  get #logFile(): string {
    return join(this.#directory, "log");
  }

  /** Returns the broker's log. */
  log(): string {
    return readFileSync(this.#logFile, "utf8");
  }

  /** Kills the broker and removes its directory. */
  async close(): Promise<void> {
    await this.kill();
    await rm(this.#directory, { recursive: true, force: true });
  }
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, "close");
  return port;
}

/** Runs a worker, and returns a function that stops it: it drains the worker, and throws what it threw. */
export function working(client: Client, handlers: Iterable<Handler>, options: WorkerOptions = {}): () => Promise<void> {
  const worker = new Worker(client, handlers, options);
  const ended = worker.run().then(
    () => undefined,
    (err: unknown) => ({ err }),
  );
  return async () => {
    worker.stop();
    const failure = await ended;
    if (failure) throw failure.err;
  };
}
