/** How connections are made. */

import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type AddressInfo } from "node:net";
import { test } from "node:test";

import { Client, type PawlError } from "../src/index.js";
import { world } from "./world.js";

const w = world();

test("calls to this machine go through no proxy, others do", async (t) => {
  const asked: string[] = [];
  const proxy = createServer((socket) =>
    socket.once("data", (data) => {
      asked.push(String(data).split("\r\n")[0] ?? "");
      socket.destroy();
    }),
  ).listen(0, "127.0.0.1");
  await once(proxy, "listening");
  t.after(() => proxy.close());
  for (const name of ["https_proxy", "grpc_proxy", "no_proxy", "no_grpc_proxy"]) delete process.env[name]; // this file has its own process
  process.env["http_proxy"] = `http://127.0.0.1:${(proxy.address() as AddressInfo).port}`;
  const port = w.broker.address.split(":").at(-1);
  const code = async (server: string) => {
    const client = new Client({ server, plaintext: true, retryFor: 0 });
    const out = await client.ref("none").info().then(() => "", (err: PawlError) => err.code);
    client.close();
    return out;
  };
  for (const host of ["127.0.0.1", "localhost"]) assert.notEqual(await code(`${host}:${port}`), "unavailable", host);
  for (const nobody of ["[::1]:1", "127.1.2.3:1", "unix:///nowhere"]) assert.equal(await code(nobody), "unavailable", nobody);
  assert.deepEqual(asked, []);
  assert.equal(await code("example.com:1"), "unavailable");
  assert.equal(asked[0], "CONNECT example.com:1 HTTP/1.1");
});
