/** Nodes that hang. */

import assert from "node:assert/strict";
import { once } from "node:events";
import { connect, createServer, type AddressInfo, type Socket } from "node:net";
import { test } from "node:test";

import { Client, defineTask } from "../src/index.js";
import { newQueue, world } from "./world.js";

const its = world();

test("a node that hangs is left", async (t) => {
  const sockets: Socket[] = [];
  const relay = createServer((near) => {
    const far = connect(Number(its.broker.address.split(":")[1]));
    near.pipe(far).pipe(near);
    sockets.push(near, far);
  }).listen(0, "127.0.0.1");
  await once(relay, "listening");
  t.mock.method(Math, "random", () => 0); // the relay comes first
  const client = new Client(`127.0.0.1:${(relay.address() as AddressInfo).port},${its.broker.address}`);
  const task = defineTask<number>("t", { queue: newQueue() });
  await client.enqueue(task, 1);
  assert.equal(sockets.length, 2);
  for (const socket of sockets) socket.unpipe().pause();
  const began = performance.now();
  await client.enqueue(task, 2);
  const took = performance.now() - began;
  client.close();
  relay.close();
  for (const socket of sockets) socket.destroy();
  assert.ok(took < 8000, `${took} ms`); // 4000 on a machine that has the time
});
