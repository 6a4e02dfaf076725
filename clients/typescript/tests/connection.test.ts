/** How connections are made. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Client } from "../src/index.js";
import { world } from "./world.js";

const w = world();

test("calls to this machine go through no proxy", async (t) => {
  const before = { ...process.env };
  t.after(() => (process.env = before));
  for (const name of ["http_proxy", "https_proxy", "grpc_proxy"]) process.env[name] = "http://127.0.0.1:1"; // where nothing listens
  const port = w.broker.address.split(":").at(-1);
  for (const host of ["127.0.0.1", "localhost"]) {
    const client = new Client({ server: `${host}:${port}`, retryFor: 0 });
    for await (const _ of client.admin.queues.list("none")) assert.fail();
    client.close();
  }
});
