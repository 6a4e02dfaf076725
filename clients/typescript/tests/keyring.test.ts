/** Encryption: what the Go SDK encrypts this one reads, and makes the same; the broker sees nothing of it. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { after, test } from "node:test";

import { Client, decodePayload, defineTask, Forged, handle, InvalidArgumentError, Keyring, Ref, Snooze, Unreadable, type Key } from "../src/index.js";
import { gate, newQueue, working, world } from "./world.js";

interface Vector {
  key: string;
  secret: string;
  place: string[];
  request: string;
  content_type: string;
  data: string;
  sealed: string;
  sealed_as: string;
}

const vectors = JSON.parse(readFileSync(join(import.meta.dirname, "../../../../test/conformance/outside/keyring.json"), "utf8")) as Vector[];
const key = (id: string, letter: string): Key => ({ id, secret: Buffer.from(letter.repeat(32)) });
const [older, newer, other] = [key("old", "o"), key("new", "n"), key("other", "x")];

test("Go and TypeScript make and read the same", () => {
  for (const v of vectors) {
    const ring = new Keyring([{ id: v.key, secret: Buffer.from(v.secret, "base64") }]);
    const opened = ring.open(v.place, Buffer.from(v.sealed, "base64"));
    assert.deepEqual([Buffer.from(opened.data).toString("base64"), opened.contentType], [v.data, v.content_type]);
    const sealed = ring.seal(v.place, v.request, v.content_type, Buffer.from(v.data, "base64"));
    assert.deepEqual([Buffer.from(sealed.data).toString("base64"), sealed.contentType], [v.sealed, v.sealed_as]);
  }
});

test("what was changed or put elsewhere is forged", () => {
  const place = ["payload", "ns", "q", "t"];
  const { data } = new Keyring([older]).seal(place, "r", "", Buffer.from("secret"));
  const ring = new Keyring([newer, older]);
  assert.equal(Buffer.from(ring.open(place, data).data).toString(), "secret");
  const changed = Buffer.from(data);
  changed[changed.length - 1] = (changed.at(-1) ?? 0) ^ 1;
  assert.throws(() => ring.open(["payload", "ns", "q2", "t"], data), Forged);
  for (const wrong of [changed, data.subarray(0, 40), Buffer.from([1, 2])]) assert.throws(() => ring.open(place, wrong), Forged);
  assert.throws(() => new Keyring([newer]).open(place, data), (err) => err instanceof Unreadable && !(err instanceof Forged));
});

test("bad keys are refused", () => {
  for (const keys of [[], [key("a b", "x")], [{ id: "a", secret: Buffer.from("short") }], [older, older]]) {
    assert.throws(() => new Keyring(keys), InvalidArgumentError);
  }
});

const w = world();
let made: Client | undefined;
after(() => made?.close());

/** A client with a keyring. */
function sealed(): Client {
  return (made ??= new Client({ server: w.broker.address, keyring: new Keyring([newer, older]) }));
}

const row = defineTask<{ n: number }>("row");

test("the broker sees nothing, and handlers all", async () => {
  const queue = newQueue();
  const order = defineTask<{ card: string }, { paid: string }>("order", { queue, retry: { initial: "10ms", jitter: 0 } });
  const receipt = defineTask<{ to: string }, string>("receipt", { queue });
  const attempts: number[] = [];
  const onOrder = handle(order, async ({ card }, claim) => {
    const paid = await claim.step("pay", () => `paid with ${card}`);
    assert.equal(await claim.once("mail", () => `mail about ${card}`), `mail about ${card}`);
    await claim.checkpoint({ card: claim.lastCheckpoint<{ card: string }>()?.card ?? card });
    attempts.push(claim.attempt);
    if (claim.attempt === 1) throw new Error("once more");
    return { paid };
  });
  const onReceipt = handle(receipt, ({ to }, claim) => `${to}: ${claim.parentResult<{ paid: string }>().paid}`);
  const ref = await sealed().enqueue(order.call({ card: "4711" }).followedBy(receipt.call({ to: "a@example.com" })));
  const seen = await w.client.ref(ref.id).info();
  assert.equal(seen.contentType, "application/vnd.pawl.encrypted; key=new");
  assert.ok(!Buffer.from(seen.payload).includes("4711"));
  assert.deepEqual(decodePayload(await ref.info()), { card: "4711" });
  const other = await sealed().enqueue(order.call({ card: "4712" }));
  assert.deepEqual(decodePayload(await sealed().admin.tasks.discard(other.id)), { card: "4712" });
  await working(sealed(), [onOrder, onReceipt], { queues: queue }, async () => {
    assert.deepEqual(await ref.result({ timeout: "20s" }), { paid: "paid with 4711" });
    const next = (await ref.info()).then[0]?.taskId ?? "";
    assert.equal(await sealed().ref(next).result({ timeout: "20s" }), "a@example.com: paid with 4711");
  });
  const end = await w.client.ref(ref.id).info();
  assert.deepEqual(attempts, [1, 2]);
  assert.ok(end.resultContentType.endsWith("key=new") && !Buffer.concat([end.result, end.checkpoint]).includes("4711"));
});

test("a checkpoint that looks encrypted is the handler's own", async () => {
  const own = { pawl_encrypted: "mine" };
  for (const client of [w.client, sealed()]) {
    const queue = newQueue();
    const alike = defineTask<null, unknown>("alike", { queue, retry: { initial: "10ms", jitter: 0 } });
    const onAlike = handle(alike, async (_, claim) => {
      if (claim.attempt > 1) return claim.lastCheckpoint();
      await claim.checkpoint(own);
      throw new Error("once more");
    });
    const ref = await client.enqueue(alike.call(null));
    await working(client, [onAlike], { queues: queue }, async () => assert.deepEqual(await ref.result({ timeout: "20s" }), own));
  }
});

test("an encrypted checkpoint needs a keyring", async () => {
  const queue = newQueue();
  const saved = defineTask<null>("saved", { queue, maxAttempts: 1 });
  const ref = await w.client.enqueue(saved.call(null)); // the payload is not encrypted
  const save = gate();
  const onSaved = handle(saved, async (_, claim) => {
    await claim.checkpoint(1);
    save.open();
    throw new Snooze("100ms");
  });
  await working(sealed(), [onSaved], { queues: queue }, () => save.opened);
  await working(w.client, [handle(saved, () => undefined)], { queues: queue }, async () => {
    const info = await ref.waitEnded({ timeout: "20s" });
    assert.equal(info.state, "dead");
    assert.match(info.attemptLog.at(-1)?.error?.message ?? "", /checkpoint: it is encrypted, and the client has no keyring/);
  });
});

test("repeats are known, groups and schedules encrypted", async () => {
  const queue = newQueue();
  const call = row.call({ n: 1 }, { queue, idempotencyKey: "o-1" });
  assert.equal((await sealed().enqueue(call)).id, (await sealed().enqueue(call)).id);
  const unique = row.call({ n: 2 }, { queue, unique: {} });
  assert.equal((await sealed().enqueue(unique)).id, (await sealed().enqueue(unique)).id);
  const [member] = (await sealed().enqueueGroup([row.call({ n: 3 }, { queue })])).tasks;
  assert.ok(member instanceof Ref);
  assert.deepEqual(decodePayload(await member.info()), { n: 3 });
  const put = () => sealed().schedules.put(queue, row.call({ n: 4 }, { queue }), { every: "1h" });
  assert.equal((await put()).change, "created");
  assert.equal((await put()).change, "unchanged");
  assert.ok((await w.client.schedules.get(queue)).task.contentType.endsWith("key=new"));
  assert.equal(Buffer.from((await sealed().schedules.get(queue)).task.payload).toString(), '{"n":4}');
});

test("what cannot be encrypted is nobody else's error", async () => {
  const queue = newQueue();
  const good = [1, 2, 3, 4].map((n) => row.call({ n }, { queue }));
  const bad = defineTask<Uint8Array>("t", { contentType: `x/${"y".repeat(254)}` }).call(new Uint8Array(), { queue });
  const answers = await Promise.allSettled([...good.slice(0, 2), bad, ...good.slice(2)].map((call) => sealed().enqueue(call)));
  assert.deepEqual(answers.map(({ status }) => status), ["fulfilled", "fulfilled", "rejected", "fulfilled", "fulfilled"]);
  const [, , refused] = answers;
  assert.ok(refused?.status === "rejected" && refused.reason instanceof InvalidArgumentError && refused.reason.field === "content_type");
});

test("what cannot be read fails, and what is forged is poisoned", async () => {
  const cases: [Keyring | undefined, string, RegExp][] = [
    [undefined, "dead", /the client has no keyring/],
    [new Keyring([other]), "dead", /which the keyring lacks/],
    [new Keyring([key("new", "?")]), "poisoned", /it is not what was encrypted/],
  ];
  for (const [keyring, state, said] of cases) {
    const queue = newQueue();
    const ref = await sealed().enqueue(row, { n: 1 }, { queue, maxAttempts: 1 });
    const client = new Client({ server: w.broker.address, ...(keyring && { keyring }) });
    await working(client, [handle(row, () => undefined)], { queues: queue }, async () => {
      const info = await client.ref(ref.id).waitEnded({ timeout: "20s" });
      assert.equal(info.state, state);
      assert.match(info.attemptLog[0]?.error?.message ?? "", said);
    });
    client.close();
  }
});

test("only what is encrypted", async () => {
  const queue = newQueue();
  const ref = await w.client.enqueue(row, { n: 1 }, { queue });
  const strict = new Client({ server: w.broker.address, keyring: new Keyring([newer], { onlyEncrypted: true }) });
  await working(strict, [handle(row, () => undefined)], { queues: queue }, async () => {
    assert.equal((await strict.ref(ref.id).waitEnded({ timeout: "20s" })).state, "poisoned");
  });
  strict.close();
});
