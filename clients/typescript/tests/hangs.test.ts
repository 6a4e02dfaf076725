/** Nodes that hang. */

import assert from "node:assert/strict";
import { once } from "node:events";
import { connect, createServer, type AddressInfo, type Socket } from "node:net";
import { test, type TestContext } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";

import { Client, defineTask, handle } from "../src/index.js";
import { gate, newQueue, working, world } from "./world.js";

const its = world();

/** Returns a relay to the broker that can hang. Answers are on their way for a while. */
async function hanging(delay = 0): Promise<{ address: string; sockets: Socket[]; hang: () => void; close: () => void }> {
  const sockets: Socket[] = [];
  const relay = createServer((near) => {
    const far = connect(Number(its.broker.address.split(":")[1]));
    near.pipe(far);
    if (delay) far.on("data", (data) => setTimeout(() => near.write(data), delay));
    else far.pipe(near);
    sockets.push(near, far);
  }).listen(0, "127.0.0.1");
  await once(relay, "listening");
  return {
    address: `127.0.0.1:${(relay.address() as AddressInfo).port}`,
    sockets,
    hang: () => sockets.forEach((socket) => socket.unpipe().pause()),
    close: () => {
      relay.close();
      for (const socket of sockets) socket.destroy();
    },
  };
}

/** Returns a client that uses the relay before the broker. */
function clientOf(t: TestContext, relay: string): Client {
  const random = t.mock.method(Math, "random", () => 0);
  const client = new Client(`${relay},${its.broker.address}`);
  random.mock.restore();
  return client;
}

/** Enqueues a task, and returns a handler of it that waits for the test. */
async function waiting() {
  const begun = gate();
  const go = gate();
  const task = defineTask<number>("t", { queue: newQueue() });
  const ref = await its.client.enqueue(task, 1);
  const handler = handle(task, async () => {
    begun.open();
    await go.opened;
  });
  return { begun, go, ref, handlers: [handler], options: { queues: task.options.queue! } };
}

test("a node that hangs is left", async (t) => {
  const relay = await hanging();
  const client = clientOf(t, relay.address);
  const task = defineTask<number>("t", { queue: newQueue() });
  await client.enqueue(task, 1);
  assert.equal(relay.sockets.length, 2);
  relay.hang();
  const began = performance.now();
  await client.enqueue(task, 2);
  const took = performance.now() - began;
  client.close();
  relay.close();
  assert.ok(took < 8000, `${took} ms`); // 4000 on a machine that has the time
});

test("a client that was busy when the answer came does not leave its node", async () => {
  const relay = await hanging(300);
  const client = new Client(relay.address);
  const ref = await client.enqueue(defineTask<null>("t", { queue: newQueue() }), null);
  const ended = ref.waitEnded();
  for (const busy of [1500, 1800]) {
    await sleep(2100); // an answer to a probe is on its way
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, busy);
  }
  await sleep(1000);
  await ref.cancel();
  assert.equal((await ended).state, "cancelled");
  assert.equal(relay.sockets.length, 2);
  client.close();
  relay.close();
});

test("a worker leaves a node that hangs while it waits for an answer, and is pinged less often than calls", async (t) => {
  const relay = await hanging();
  const client = clientOf(t, relay.address);
  const { begun, go, ref, handlers, options } = await waiting();
  let took = Infinity;
  await working(client, handlers, options, async () => {
    await begun.opened;
    let pings = 0;
    relay.sockets[0]?.on("data", () => pings++);
    await sleep(3000);
    assert.equal(pings, 0);
    relay.hang();
    const began = performance.now();
    go.open();
    await ref.waitEnded();
    took = performance.now() - began;
  });
  client.close();
  relay.close();
  assert.ok(took < 8000, `${took} ms`); // 4000 on a machine that has the time
});

test("two workers of a client leave a node that hangs, each when it waits for an answer", async (t) => {
  const relay = await hanging();
  const client = clientOf(t, relay.address);
  const [one, other] = [await waiting(), await waiting()];
  let took = Infinity;
  await working(client, one.handlers, one.options, () =>
    working(client, other.handlers, other.options, async () => {
      await Promise.all([one.begun.opened, other.begun.opened]);
      relay.hang();
      one.go.open();
      await one.ref.waitEnded();
      const began = performance.now();
      other.go.open();
      await other.ref.waitEnded();
      took = performance.now() - began;
    }),
  );
  client.close();
  relay.close();
  assert.ok(took < 8000, `${took} ms`); // 2000 on a machine that has the time
});
