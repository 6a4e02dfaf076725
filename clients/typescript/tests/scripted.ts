/** A broker that does what a test tells it, for what the real one does only in rare moments. */

import { create, fromBinary, toBinary, type DescMessage, type MessageInitShape, type MessageShape } from "@bufbuild/protobuf";
import { Server, ServerCredentials, status, type ServerDuplexStream } from "@grpc/grpc-js";

import { SettleRequestSchema, SettleResponseSchema, WorkRequestSchema, WorkResponseSchema } from "../src/gen/pawl/v1/worker_pb.js";
import type { SettleRequest, SettleResponse, WorkRequest, WorkResponse } from "../src/gen/pawl/v1/worker_pb.js";

/** Gives what is put into it, in order, to those who wait. */
export class Mailbox<T> {
  readonly #items: T[] = [];
  readonly #waiting: ((item: T) => void)[] = [];

  put(item: T): void {
    const next = this.#waiting.shift();
    if (next) next(item);
    else this.#items.push(item);
  }

  take(): Promise<T> {
    const item = this.#items.shift();
    return item === undefined ? new Promise((resolve) => this.#waiting.push(resolve)) : Promise.resolve(item);
  }
}

/** The broker's end of a worker's stream. */
export class Stream {
  readonly #received = new Mailbox<WorkRequest>();
  ended = false;

  constructor(readonly call: ServerDuplexStream<WorkRequest, WorkResponse>) {
    call.on("data", (frame: WorkRequest) => this.#received.put(frame));
    call.on("end", () => {
      this.ended = true;
      call.end();
    });
    call.on("error", () => {});
  }

  /** Returns the worker's next frame. */
  receive(): Promise<WorkRequest> {
    return this.#received.take();
  }

  /** Returns the next frame that settles anything. */
  async settles(): Promise<SettleRequest> {
    for (;;) {
      const { settle } = await this.receive();
      if (settle) return settle;
    }
  }

  /** Sends a frame. */
  send(frame: MessageInitShape<typeof WorkResponseSchema>): void {
    this.call.write(create(WorkResponseSchema, frame));
  }

  /** Pushes tasks of type t, with leases of 30 s. */
  push(...tokens: string[]): void {
    this.send({ tasks: tokens.map((token) => ({ taskId: idOf(token), claimToken: token, queue: "q", type: "t", lease: { seconds: 30n } })) });
  }

  /** Answers what a frame settles: done, or refused with a code. */
  answer(request: SettleRequest, code = "", reason = ""): void {
    this.send({ settled: answerTo(request, code, reason) });
  }

  /** Breaks the stream, as a lost connection does. */
  breakOff(): void {
    this.call.emit("error", { code: status.UNAVAILABLE, details: "as the test wants it" });
  }
}

/** Serves Work, Settle and health checks. */
export class ScriptedBroker {
  readonly #server = new Server();
  readonly #streams = new Mailbox<Stream>();
  readonly settled = new Mailbox<SettleRequest>();
  /** How often a worker has probed the connection of its stream. */
  probes = 0;
  /** Codes with which the next calls of Settle are refused; then they succeed. */
  settleRefusals: string[] = [];
  address = "";

  static async start(): Promise<ScriptedBroker> {
    const out = new ScriptedBroker();
    out.#server.addService(
      {
        work: { ...method("Work", WorkRequestSchema, WorkResponseSchema), requestStream: true, responseStream: true },
        settle: { ...method("Settle", SettleRequestSchema, SettleResponseSchema), requestStream: false, responseStream: false },
      },
      {
        work: (call: ServerDuplexStream<WorkRequest, WorkResponse>) => out.#streams.put(new Stream(call)),
        settle: ({ request }: { request: SettleRequest }, callback: (err: null, answer: SettleResponse) => void) => {
          out.settled.put(request);
          callback(null, answerTo(request, out.settleRefusals.shift()));
        },
      },
    );
    const same = (data: Buffer) => data;
    const serialization = { requestSerialize: same, requestDeserialize: same, responseSerialize: same, responseDeserialize: same };
    out.#server.addService(
      { check: { path: "/grpc.health.v1.Health/Check", requestStream: false, responseStream: false, ...serialization } },
      {
        check: (_: unknown, callback: (err: null, answer: Buffer) => void) => {
          out.probes++;
          callback(null, Buffer.alloc(0));
        },
      },
    );
    const port = await new Promise<number>((resolve, reject) => {
      out.#server.bindAsync("127.0.0.1:0", ServerCredentials.createInsecure(), (err, bound) => (err ? reject(err) : resolve(bound)));
    });
    out.address = `127.0.0.1:${port}`;
    return out;
  }

  /** Waits for the next stream of a worker. */
  stream(): Promise<Stream> {
    return this.#streams.take();
  }

  /** Ends all streams. */
  close(): void {
    this.#server.forceShutdown();
  }
}

function method<I extends DescMessage, O extends DescMessage>(name: string, input: I, output: O) {
  return {
    path: `/pawl.v1.WorkerService/${name}`,
    requestSerialize: (message: MessageShape<I>) => Buffer.from(toBinary(input, message)),
    requestDeserialize: (data: Buffer) => fromBinary(input, data),
    responseSerialize: (message: MessageShape<O>) => Buffer.from(toBinary(output, message)),
    responseDeserialize: (data: Buffer) => fromBinary(output, data),
  };
}

function answerTo(request: SettleRequest, code = "", reason = ""): SettleResponse {
  const one = ({ taskId, claimToken }: { taskId: string; claimToken: string }) => ({ taskId, claimToken, ...(code && { error: { code, reason } }) });
  return create(SettleResponseSchema, {
    acks: request.acks.map(one),
    fails: request.fails.map(one),
    extends: request.extends.map(one),
    releases: request.releases.map(one),
  });
}

/** Returns a task's id: for "a.1" one in shard 1. */
function idOf(token: string): string {
  const [name, shard] = token.split(".");
  return shard ? `00000000-0000-7${Number(shard).toString(16).padStart(3, "0")}-8000-0000000000${name!.charCodeAt(0).toString(16)}` : `id-${name}`;
}
