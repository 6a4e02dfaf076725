/** One broker for the tests of a file, and queues that no other test uses. */

import { randomUUID } from "node:crypto";
import { after, before } from "node:test";

import { Client } from "../src/index.js";
import { Broker } from "../src/testing.js";

/** The broker and a client of it, while tests run. */
export interface World {
  broker: Broker;
  client: Client;
}

/** Starts a broker before the tests of a file, and ends it behind them. */
export function world(flags: readonly string[] = []): World {
  const out = {} as World;
  before(async () => {
    out.broker = await Broker.start({ flags });
    out.client = new Client(out.broker.address);
  });
  after(async () => {
    out.client.close();
    await out.broker.close();
  });
  return out;
}

/** Names a queue that no other test uses. */
export function newQueue(): string {
  return `q-${randomUUID().slice(0, 12)}`;
}
