/** Repeats of an enqueue carry the request id of the first try. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { create, fromBinary, toBinary, type MessageInitShape } from "@bufbuild/protobuf";
import { Server, ServerCredentials, status } from "@grpc/grpc-js";

import { Client, defineTask, PawlError } from "../src/index.js";
import { EnqueueBatchRequestSchema, EnqueueBatchResponseSchema, type EnqueueBatchRequest, type EnqueueBatchResponse } from "../src/gen/pawl/v1/producer_pb.js";


/** Serves EnqueueBatch: each request is answered with what results gives, or with an error. */
async function serving(results: (request: EnqueueBatchRequest) => MessageInitShape<typeof EnqueueBatchResponseSchema>["results"] | status): Promise<{ client: Client; close: () => void }> {
  const server = new Server();
  const enqueueBatch = {
    path: "/pawl.v1.ProducerService/EnqueueBatch",
    requestStream: false,
    responseStream: false,
    requestSerialize: (message: EnqueueBatchRequest) => Buffer.from(toBinary(EnqueueBatchRequestSchema, message)),
    requestDeserialize: (data: Buffer) => fromBinary(EnqueueBatchRequestSchema, data),
    responseSerialize: (message: EnqueueBatchResponse) => Buffer.from(toBinary(EnqueueBatchResponseSchema, message)),
    responseDeserialize: (data: Buffer) => fromBinary(EnqueueBatchResponseSchema, data),
  };
  server.addService({ enqueueBatch }, {
    enqueueBatch: ({ request }: { request: EnqueueBatchRequest }, answer: (err: { code: status } | null, answer?: EnqueueBatchResponse) => void) => {
      const out = results(request);
      if (typeof out === "number") answer({ code: out });
      else answer(null, create(EnqueueBatchResponseSchema, { results: out ?? [] }));
    },
  });
  const port = await new Promise<number>((resolve) => server.bindAsync("127.0.0.1:0", ServerCredentials.createInsecure(), (_, bound) => resolve(bound)));
  const client = new Client(`127.0.0.1:${port}`);
  return {
    client,
    close: () => {
      client.close();
      server.forceShutdown();
    },
  };
}

test("a batch whose answer is lost, and then whose shard is unavailable for one task, is repeated with the same request ids", async () => {
  const requests: string[][] = [];
  const { client, close } = await serving((request) => {
    requests.push(request.tasks.map((each) => each.requestId ?? ""));
    if (requests.length === 1) return status.UNAVAILABLE;
    return request.tasks.map(({ requestId }, at) =>
      requests.length === 2 && at === 1 ? { error: { code: "unavailable" } } : { task: { taskId: `id-${requestId}` } },
    );
  });
  const refs = await client.enqueueMany(defineTask<number>("t"), [1, 2, 3]);
  const [first = []] = requests;
  assert.equal(new Set(first.filter((id) => /^[0-9a-f-]{36}$/.test(id))).size, 3);
  assert.deepEqual(requests, [first, first, [first[1]]]);
  assert.deepEqual(refs.map((ref) => ref.id), first.map((id) => `id-${id}`));
  close();
});

test("tasks enqueued at the same time share a request, and only what is unavailable is repeated, with the same request id", async () => {
  const requests: string[][] = [];
  const { client, close } = await serving((request) => {
    requests.push(request.tasks.map((each) => each.requestId ?? ""));
    return request.tasks.map(({ requestId, type }) => {
      if (type === "bad") return { error: { code: "invalid_argument", field: "type" } };
      return type === "slow" && requests.length < 3 ? { error: { code: "unavailable" } } : { task: { taskId: `id-${requestId}` } };
    });
  });
  const [good, slow, bad] = await Promise.allSettled(["good", "slow", "bad"].map((type) => client.enqueue(defineTask<number>(type), 1)));
  const [first = []] = requests;
  assert.equal(new Set(first).size, 3);
  assert.deepEqual(requests, [first, [first[1]], [first[1]]]);
  assert.deepEqual([good?.status, slow?.status, bad?.status], ["fulfilled", "fulfilled", "rejected"]);
  assert.ok(bad?.status === "rejected" && bad.reason instanceof PawlError && bad.reason.field === "type");
  assert.ok(slow?.status === "fulfilled" && slow.value.id === `id-${first[1]}`);
  close();
});
