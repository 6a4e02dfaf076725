/**
 * Notices that a node hangs: it closes no connection, but its shards have other leaders after two seconds. gRPC's own pings would do, but
 * grpc-js takes a connection for lost if its process was busy when the answer came.
 */

import { connectivityState, type Client } from "@grpc/grpc-js";

const probeAfter = 2000; // without an answer to any call
const probeTimeout = 1500;
const busy = 250; // if the time is up later than this, the process was busy, and the answer may have waited in it

/** Probes the connection of a channel once, and reports whether its node hangs. A node that is busy answers. */
export async function hangs(channel: Client): Promise<boolean> {
  if (channel.getChannel().getConnectivityState(false) !== connectivityState.READY) return false;
  const began = performance.now();
  const same = (data: Buffer) => data;
  return new Promise((resolve) => {
    const timeIsUp = () => {
      call.cancel();
      resolve(performance.now() - began < probeTimeout + busy);
    };
    // Sockets are read between a timer and what it sets immediately.
    const timer = setTimeout(() => setTimeout(() => setImmediate(timeIsUp)), probeTimeout);
    const call = channel.makeUnaryRequest("/grpc.health.v1.Health/Check", same, same, Buffer.alloc(0), () => {
      clearTimeout(timer);
      resolve(false);
    });
  });
}

/** The calls in flight on a channel. If none of them is answered for a while, the connection is probed. */
export class Watch {
  readonly #channel: Client;
  readonly #calls = new Set<() => void>();
  #answers = 0;
  #timer: NodeJS.Timeout | undefined;

  constructor(channel: Client) {
    this.#channel = channel;
  }

  /** Watches a call. leave is called if the node hangs. The caller calls the function that is returned when the call has ended. */
  add(leave: () => void): () => void {
    this.#calls.add(leave);
    this.#timer ??= this.#later();
    return () => {
      this.#answers++;
      this.#calls.delete(leave);
      if (this.#calls.size > 0) return;
      clearTimeout(this.#timer);
      this.#timer = undefined;
    };
  }

  #later(): NodeJS.Timeout {
    const answers = this.#answers;
    const timer = setTimeout(async () => {
      const left = answers === this.#answers && (await hangs(this.#channel)) && answers === this.#answers;
      if (left) for (const leave of [...this.#calls]) leave();
      if (this.#timer === timer) this.#timer = this.#calls.size > 0 ? this.#later() : undefined;
    }, probeAfter);
    return timer.unref();
  }
}
