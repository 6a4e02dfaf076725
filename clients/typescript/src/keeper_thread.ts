/** The thread of a Keeper. */

import { workerData } from "node:worker_threads";

import type { MessageInitShape } from "@bufbuild/protobuf";

import { clock } from "./clock.js";
import { Connection } from "./connection.js";
import { duration } from "./convert.js";
import { WorkerService, type ExtendRequestSchema } from "./gen/pawl/v1/worker_pb.js";
import type { Lease, Order, Report, Start } from "./keeper.js";
import { maxSettle } from "./limits.js";
import { Caller } from "./rpc.js";

const step = 50; // extensions that are due within this time are sent together
const callTime = 5000;

const { port, connection } = workerData as Start;
const leases = new Map<string, { lease: Lease; due: number }>();
let token: string | undefined;
let timer: NodeJS.Timeout | undefined;
const caller = new Caller(new Connection({ ...connection, token: () => token ?? "" }, {}), 0);

/** The worker extends a lease when a third of it has passed, so this thread waits for half of it. */
const firstDue = (lease: Lease) => lease.from + lease.length / 2;

port.on("message", (order: Order) => {
  token = order.token ?? token;
  for (const lease of order.hold) leases.set(lease.claimToken, { lease, due: firstDue(lease) });
  for (const { claimToken, at } of order.extended) extended(claimToken, at);
  for (const claimToken of order.drop) leases.delete(claimToken);
  schedule();
});

function extended(claimToken: string, at: number): void {
  const held = leases.get(claimToken);
  if (!held || at < held.lease.from) return;
  held.lease.from = at;
  held.due = firstDue(held.lease);
}

function schedule(): void {
  clearTimeout(timer);
  timer = undefined;
  let at = Infinity;
  for (const { due } of leases.values()) at = Math.min(at, due);
  if (at < Infinity) timer = setTimeout(() => void extend(), Math.max(at - clock(), 0));
}

/** Extends the leases that are due. One that gets no answer is due again while it lasts; one that has ended is the worker's to judge. */
async function extend(): Promise<void> {
  const at = clock();
  const names: MessageInitShape<typeof ExtendRequestSchema>[] = [];
  for (const [claimToken, held] of leases) {
    const { lease } = held;
    if (lease.until <= at || lease.from + lease.length <= at) leases.delete(claimToken);
    else if (held.due <= at + step && names.length < maxSettle) {
      held.due = at + lease.length / 8;
      names.push({ taskId: lease.taskId, claimToken, lease: duration("lease", lease.length) });
    }
  }
  schedule();
  if (names.length === 0) return;
  try {
    const answer = await caller.once(WorkerService.method.settle, { extends: names }, { deadline: performance.now() + callTime });
    const reports: Report[] = [];
    for (const { claimToken, error } of answer.extends) {
      if (error?.code === "stale_claim" || error?.code === "not_found") {
        leases.delete(claimToken);
        reports.push({ claimToken, lost: error.reason });
      } else if (!error) {
        extended(claimToken, at);
        reports.push({ claimToken, at });
      }
    }
    port.postMessage(reports);
    schedule();
  } catch {
    // it is due again
  }
}

port.postMessage([]); // it is ready
