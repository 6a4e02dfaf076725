/** Tokens, TLS, client certificates and namespaces. */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { copyFileSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";

import * as pawl from "../src/index.js";
import { Broker } from "../src/testing.js";
import { gate, newQueue, silent, working } from "./world.js";

const binary = process.env["PAWL_BINARY"] || "pawl";
const directory = mkdtempSync(join(tmpdir(), "pawl-access-"));
const file = (name: string) => join(directory, name);
let broker: Broker;
let admin: string;
const open: pawl.Client[] = [];

before(async () => {
  const certificates = [
    ["ca", "--out", file("ca")],
    ["ca", "--out", file("other")],
    ["server", "n1", "--ca", file("ca"), "--out", directory, "--host", "127.0.0.1"],
    ...["billing", "payroll", "stranger"].map((name) => ["client", name, "--ca", file("ca"), "--out", directory]),
  ];
  for (const args of certificates) execFileSync(binary, ["cert", ...args]);
  const tls = ["--tls-cert", file("n1.crt"), "--tls-key", file("n1.key"), "--client-ca", file("ca/ca.crt")];
  broker = await Broker.start({ flags: ["--auth", "--admin-token-file", file("admin"), ...tls] });
  admin = readFileSync(file("admin"), "utf8").trim();
});

after(async () => {
  for (const client of open) client.close();
  await broker.close();
  rmSync(directory, { recursive: true });
});

/** Makes a client that trusts the broker's authority. */
function secure(options: pawl.ClientOptions = {}): pawl.Client {
  const client = new pawl.Client({ server: `https://${broker.address}`, tls: { caFile: file("ca/ca.crt") }, retryFor: 0, ...options });
  open.push(client);
  return client;
}

/** Runs the command line as the administrator. */
function command(...args: string[]): string {
  const env = { ...process.env, PAWL_SERVER: `https://${broker.address}`, PAWL_TLS_CA: file("ca/ca.crt"), PAWL_TOKEN_FILE: file("admin") };
  return execFileSync(binary, args, { env, encoding: "utf8" }).trim();
}

const task = pawl.defineTask<null>("t");

test("a token lets in, and says what for", async () => {
  const queue = newQueue();
  const client = secure({ token: command("token", "add", queue, "--role", "produce", "--queue", `${queue}*`) });
  await client.enqueue(task, null, { queue });
  await assert.rejects(client.enqueue(task, null, { queue: "another" }), pawl.PermissionDeniedError);
  await assert.rejects(new pawl.Worker(client, [pawl.handle(task, () => {})], { queues: queue, logger: silent }).run(), pawl.PermissionDeniedError);
  for (const bad of [{}, { token: "pawl_wrong" }]) await assert.rejects(secure(bad).enqueue(task, null), pawl.UnauthenticatedError);
});

test("a token that is exchanged is taken up", async () => {
  const tokens: string[] = [];
  const token = async () => tokens.at(-1) ?? Promise.reject(new Error("none yet"));
  const client = secure({ token });
  await assert.rejects(client.enqueue(task, null), (err: unknown) => err instanceof pawl.UnauthenticatedError && /no token: none yet/.test(err.message));
  tokens.push("pawl_wrong");
  await assert.rejects(client.enqueue(task, null), pawl.UnauthenticatedError);
  tokens.push(admin);
  await client.enqueue(task, null);
});

test("the environment has token and authority", async () => {
  const given = { PAWL_SERVER: `https://${broker.address}`, PAWL_TOKEN_FILE: file("admin"), PAWL_TLS_CA: file("ca/ca.crt") };
  Object.assign(process.env, given);
  const client = new pawl.Client();
  for (const name of Object.keys(given)) delete process.env[name];
  open.push(client);
  await client.enqueue(task, null);
});

test("a client certificate lets in", async () => {
  command("token", "add", newQueue(), "--queue", "*", "--role", "produce", "--certificate", "uri:pawl://client/billing");
  const tls = { caFile: file("ca/ca.crt"), certFile: file("billing.crt"), keyFile: file("billing.key") };
  await secure({ tls }).enqueue(task, null);
});

test("certificates that are replaced are taken up", async () => {
  const queue = newQueue();
  command("token", "add", queue, "--queue", "*", "--role", "produce", "--role", "consume", "--certificate", "uri:pawl://client/payroll");
  const tls = { caFile: file("own.ca"), certFile: file("own.crt"), keyFile: file("own.key") };
  const put = (...names: string[]) => names.forEach((name, at) => copyFileSync(file(name), Object.values(tls)[at]!));
  put("other/ca.crt", "stranger.crt", "stranger.key");
  const client = secure({ tls });
  const enqueue = () => client.enqueue(task, null, { queue });
  await assert.rejects(enqueue, pawl.UnavailableError);
  put("ca/ca.crt");
  await assert.rejects(enqueue, pawl.UnauthenticatedError);
  put("ca/ca.crt", "payroll.crt"); // not yet its key: the pair before is used
  await assert.rejects(enqueue, pawl.UnauthenticatedError);
  put("ca/ca.crt", "payroll.crt", "payroll.key");
  await enqueue();
  rmSync(tls.keyFile);
  await enqueue();
  put("ca/ca.crt", "payroll.crt", "payroll.key");
  let ran = gate();
  await working(client, [pawl.handle(task, () => ran.open())], { queues: queue }, async () => {
    await ran.opened;
    ran = gate();
    put("ca/ca.crt", "payroll.crt", "payroll.key"); // the stream goes on
    await enqueue();
    await ran.opened;
  });
});

test("a server of another authority is not trusted", async () => {
  await assert.rejects(secure({ token: admin, tls: { caFile: file("other/ca.crt") } }).enqueue(task, null), pawl.UnavailableError);
  await assert.rejects(secure({ token: admin, tls: {} }).enqueue(task, null), pawl.UnavailableError);
});

test("an authority in NODE_EXTRA_CA_CERTS is trusted unless another is given, and a file that is missing is ignored, as by Node", () => {
  const program = `
    import { Client, defineTask } from ${JSON.stringify(new URL("../src/index.js", import.meta.url).href)};
    const [, caFile] = process.argv;
    const client = new Client({ server: "https://${broker.address}", token: "${admin}", tls: { caFile }, retryFor: 0 });
    console.log(await client.enqueue(defineTask("t", { queue: "${newQueue()}" }), null).then(() => "trusted", (err) => err.code));
    client.close();`;
  const run = (extra: string, ...args: string[]) => {
    const env = { ...process.env, NODE_EXTRA_CA_CERTS: extra };
    return execFileSync(process.execPath, ["--input-type=module", "-e", program, ...args], { env, encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] }).trim();
  };
  const [ours, other, missing] = [file("ca/ca.crt"), file("other/ca.crt"), file("nowhere")];
  assert.deepEqual([run(ours), run(ours, other), run(missing), run(missing, ours)], ["trusted", "unavailable", "unavailable", "trusted"]);
});

test("files that do not fit are refused at once", () => {
  const bad = [{ caFile: file("nowhere") }, { keyFile: file("billing.key") }, { certFile: file("billing.crt"), keyFile: file("n1.key") }];
  for (const tls of bad) assert.throws(() => secure({ tls }), { field: "tls" });
});

test("a namespace has tasks of its own", async () => {
  const namespace = newQueue();
  command("ns", "add", namespace);
  const ref = await secure({ token: admin, namespace }).enqueue(task, null);
  await assert.rejects(secure({ token: admin }).ref(ref.id).info(), pawl.NotFoundError);
});
