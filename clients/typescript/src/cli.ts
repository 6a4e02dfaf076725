#!/usr/bin/env node
/** The command pawl-worker, which runs the handlers of a module. */

import { resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { parseArgs } from "node:util";

import { Client } from "./client.js";
import { messageOf, milliseconds } from "./convert.js";
import { PawlError } from "./errors.js";
import type { Handler } from "./handler.js";
import { isLevel, safely, stderrLogger, type Logger } from "./log.js";
import { orphaned, Supervisor } from "./supervisor.js";
import { terminated, Worker, type WorkerOptions } from "./worker.js";

const defaultDrainTimeout = "25s";
const maxProcesses = 1000;

const usage = `usage: pawl-worker MODULE [options]

Runs the handlers that a module exports, such as ./tasks.js, until SIGTERM or SIGINT, then drains; a second signal ends it immediately.
It uses the Client that the module exports as client. Without one, the broker's address and the credentials come from the environment
(PAWL_SERVER, PAWL_TOKEN and so on).

  --queues QUEUES          queues with weights, mail=7,default=3, or in strict order, urgent,default (default: default)
  --concurrency N          tasks that each process may run at a time (default: 10)
  --processes N            number of processes, each with its own connection; a process that exits is restarted (default: 1)
  --lease DURATION         length of the lease, 1s to 12h (default: the queue's)
  --drain-timeout DURATION how long running tasks may take to finish (default: 25s)
  --name NAME              name of the worker in attempt logs (default: host/pid)
  --log-level LEVEL        minimum level of log messages: debug, info, warn or error (default: info)
  --help
`;

/**
 * Runs the command and returns its exit status: 0 after a drain, 1 if the broker refused the worker or did not confirm how tasks ended, or
 * after a rejection that nobody handled, 2 for a usage error.
 */
async function main(): Promise<number> {
  let worker: Worker;
  let stop = terminated;
  let log: Logger = stderrLogger("info");
  try {
    const { module, options, processes, supervised } = settings(process.argv.slice(2));
    if (!module) {
      process.stdout.write(usage);
      return 0;
    }
    log = safely(options.logger ?? log);
    if (processes > 1) return await supervise(processes, options);
    if (supervised) stop = () => AbortSignal.any([terminated(), orphaned()]);
    const { handlers, client } = await load(module);
    worker = new Worker(client, handlers, options);
  } catch (err) {
    process.stderr.write(`pawl-worker: ${messageOf(err)}\n`);
    return 2;
  }
  let status = 0;
  process.on("unhandledRejection", (err) => { // which would end the process, and use an attempt of each running task
    status = 1;
    log.error("a promise was rejected and nobody handled it: the worker drains and ends:", err);
    worker.stop();
  });
  try {
    await worker.run(stop());
    return status;
  } catch (err) {
    if (!(err instanceof PawlError)) throw err;
    process.stderr.write(`pawl-worker: ${err.code}: ${err.message}\n`);
    return 1;
  }
}

/** Runs this command in several processes. */
function supervise(processes: number, options: WorkerOptions): Promise<number> {
  const command = [...process.execArgv, fileURLToPath(import.meta.url), ...process.argv.slice(2), "--processes", "1", "--supervised"];
  const drainTimeout = milliseconds("drainTimeout", options.drainTimeout ?? defaultDrainTimeout);
  return new Supervisor({ command, processes, drainTimeout, logger: options.logger ?? stderrLogger("info") }).run();
}

/** The parsed arguments. */
interface Settings {
  /** undefined: help was requested. */
  module: string | undefined;
  options: WorkerOptions;
  processes: number;
  supervised: boolean;
}

/** Parses the arguments. */
function settings(args: string[]): Settings {
  const text = { type: "string" } as const;
  const known = {
    queues: text,
    concurrency: text,
    processes: text,
    supervised: { type: "boolean" },
    lease: text,
    "drain-timeout": text,
    name: text,
    "log-level": text,
    help: { type: "boolean" },
  } as const;
  const { values, positionals } = parseArgs({ args, options: known, allowPositionals: true });
  if (values.help) return { module: undefined, options: {}, processes: 1, supervised: false };
  const [module] = positionals;
  if (!module || positionals.length > 1) throw new TypeError(`${positionals.length} modules, want one: pawl-worker ./tasks.js`);
  const level = values["log-level"] ?? "info";
  if (!isLevel(level)) throw new TypeError(`--log-level: "${level}" is not debug, info, warn or error`);
  const options: WorkerOptions = { logger: stderrLogger(level) };
  if (values.queues !== undefined) options.queues = values.queues;
  if (values.concurrency !== undefined) options.concurrency = Number(values.concurrency);
  if (values.lease !== undefined) options.lease = values.lease;
  if (values["drain-timeout"] !== undefined) options.drainTimeout = values["drain-timeout"];
  if (values.name !== undefined) options.name = values.name;
  const processes = Number(values.processes ?? 1);
  if (!Number.isInteger(processes) || processes < 1 || processes > maxProcesses) {
    throw new TypeError(`--processes: "${values.processes}" is not a number from 1 to ${maxProcesses}`);
  }
  return { module, options, processes, supervised: values.supervised ?? false };
}

/** Imports a module and finds its handlers: those that it exports, also in arrays. */
async function load(path: string): Promise<{ handlers: Set<Handler>; client: Client }> {
  const exported = (await import(pathToFileURL(resolve(path)).href)) as Record<string, unknown>;
  const handlers = new Set<Handler>();
  for (const value of Object.values(exported)) {
    for (const each of Array.isArray(value) ? (value as unknown[]) : [value]) if (isHandler(each)) handlers.add(each);
  }
  if (handlers.size === 0) throw new TypeError(`${path} exports no handlers: export the results of handle(task, function)`);
  const { client } = exported;
  if (client !== undefined && !(client instanceof Client)) throw new TypeError(`${path}: the export client is not a Client of this package`);
  return { handlers, client: client ?? new Client() };
}

function isHandler(value: unknown): value is Handler {
  return typeof value === "object" && value !== null && "type" in value && "run" in value && typeof value.run === "function";
}

process.exit(await main()); // handlers that do not stop would keep the process alive
