/** Repeats of an enqueue whose answer was lost carry the request id of the first try. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { Server, ServerCredentials, status } from "@grpc/grpc-js";

import { Client, defineTask } from "../src/index.js";
import { EnqueueBatchRequestSchema, EnqueueBatchResponseSchema, type EnqueueBatchRequest } from "../src/gen/pawl/v1/producer_pb.js";

type Answer = (err: { code: status } | null, answer?: ReturnType<typeof create<typeof EnqueueBatchResponseSchema>>) => void;

test("a batch whose answer is lost, and then whose shard is unavailable for one task, is repeated with the same request ids", async () => {
  const requests: string[][] = [];
  const server = new Server();
  const enqueueBatch = {
    path: "/pawl.v1.ProducerService/EnqueueBatch",
    requestStream: false,
    responseStream: false,
    requestSerialize: (message: EnqueueBatchRequest) => Buffer.from(toBinary(EnqueueBatchRequestSchema, message)),
    requestDeserialize: (data: Buffer) => fromBinary(EnqueueBatchRequestSchema, data),
    responseSerialize: (message: ReturnType<typeof create<typeof EnqueueBatchResponseSchema>>) => Buffer.from(toBinary(EnqueueBatchResponseSchema, message)),
    responseDeserialize: (data: Buffer) => fromBinary(EnqueueBatchResponseSchema, data),
  };
  server.addService({ enqueueBatch }, {
    enqueueBatch: ({ request }: { request: EnqueueBatchRequest }, answer: Answer) => {
      requests.push(request.tasks.map((each) => each.requestId));
      if (requests.length === 1) return answer({ code: status.UNAVAILABLE });
      const results = request.tasks.map(({ requestId }, at) =>
        requests.length === 2 && at === 1 ? { error: { code: "unavailable" } } : { task: { taskId: `id-${requestId}` } },
      );
      answer(null, create(EnqueueBatchResponseSchema, { results }));
    },
  });
  const port = await new Promise<number>((resolve) => server.bindAsync("127.0.0.1:0", ServerCredentials.createInsecure(), (_, bound) => resolve(bound)));
  const client = new Client(`127.0.0.1:${port}`);
  const refs = await client.enqueueMany(defineTask<number>("t"), [1, 2, 3]);
  const [first = []] = requests;
  assert.equal(new Set(first.filter((id) => /^[0-9a-f-]{36}$/.test(id))).size, 3);
  assert.deepEqual(requests, [first, first, [first[1]]]);
  assert.deepEqual(refs.map((ref) => ref.id), first.map((id) => `id-${id}`));
  client.close();
  server.forceShutdown();
});
