/** Keeps a stream to the broker, over any number of connections. */

import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { connectivityState, type Client, type ClientDuplexStream, type ServiceError } from "@grpc/grpc-js";

import type { Claims } from "./claims.js";
import { ClientClosedError, InvalidArgumentError, PawlError, PermissionDeniedError, UnauthenticatedError, UnavailableError } from "./errors.js";
import { WorkerService, WorkRequestSchema, WorkResponseSchema, type WorkRequest, type WorkResponse } from "./gen/pawl/v1/worker_pb.js";
import { firstReconnect, maxReconnect } from "./limits.js";
import { backoff, pathOf, type Caller } from "./rpc.js";
import { hangs } from "./watch.js";

// A stream that is silent for this long is reopened, so that both sides start afresh with their view of each other's slots. If the new
// stream is silent too, there was nothing to send, and the next silence may last twice as long.
const silentAfter = 60_000;
const maxSilence = 240_000;
// While an answer on the stream is awaited and nothing arrives, its connection is probed this often, and replaced if it hangs.
const probeAfter = 2000;
const closeTimeout = 2000; // for the broker to finish a stream that the worker has closed
const unwantedFor = 60_000; // how long a worker that was once admitted keeps retrying when it is rejected: its token may be replaced in that time
const steady = 5000;

type Stream = ClientDuplexStream<WorkRequest, WorkResponse>;

/** One stream. */
interface Session {
  channel: Client;
  call: Stream;
  frames: number; // received
  hangs: boolean; // the node does not answer
  draining: boolean; // the broker is shutting down
  closing: NodeJS.Timeout | undefined;
  silence: NodeJS.Timeout | undefined;
  probe: NodeJS.Timeout | undefined; // an answer is awaited
}

/** The link of one run of a worker. */
export class Link {
  readonly #caller: Caller;
  readonly #claims: Claims;
  readonly #closing = new AbortController(); // the stream will not be opened again
  #session: Session | undefined;
  readonly #connecting = new WeakSet<Client>();
  #silences = 0;
  #flushing = false;

  constructor(caller: Caller, claims: Claims) {
    this.#caller = caller;
    this.#claims = claims;
  }

  /**
   * Works until close is called. Returns an error if the broker rejects the worker, before ever having served it or because of its token for
   * a minute, or if the client was closed.
   */
  async run(): Promise<PawlError | undefined> {
    let served = false;
    let attempt = 0;
    let unwanted: number | undefined;
    while (!this.#closing.signal.aborted) {
      const start = performance.now();
      const { heard, err } = await this.#stream();
      const now = performance.now();
      if (now - start > steady) attempt = 0;
      served ||= heard || now - start > steady;
      if (this.#closing.signal.aborted) return undefined;
      const notLetIn = err instanceof UnauthenticatedError || err instanceof PermissionDeniedError;
      unwanted = notLetIn ? (unwanted ?? now) : undefined;
      if (err instanceof ClientClosedError || (!served && (notLetIn || err instanceof InvalidArgumentError))) return err;
      if (unwanted !== undefined && now - unwanted >= unwantedFor) return err;
      let pause = backoff(attempt++, firstReconnect, maxReconnect);
      if (err) {
        pause = Math.max(pause, Math.min(err.retryAfter, maxReconnect));
        this.#claims.log[notLetIn ? "error" : "warn"](`work stream broke, reconnecting in ${Math.round(pause)} ms: ${err.code}: ${err.message}`);
      }
      await this.#caller.sleep(pause, this.#closing.signal).catch(() => {}); // the next stream reports a closed client
    }
    return undefined;
  }

  /** Opens a stream and works with it until it ends. */
  async #stream(): Promise<{ heard: boolean; err?: PawlError | undefined }> {
    try {
      await this.#caller.knowNamespace(); // now rather than when the first task arrives
      const metadata = await this.#caller.connection.metadata();
      const { channel, turn } = this.#caller.connection.channel("stream");
      const call: Stream = channel.makeBidiStreamRequest(
        pathOf(WorkerService.method.work),
        (frame: WorkRequest) => Buffer.from(toBinary(WorkRequestSchema, frame)),
        (data: Buffer) => fromBinary(WorkResponseSchema, data),
        metadata,
      );
      const session: Session = { channel, call, frames: 0, hangs: false, draining: false, closing: undefined, silence: undefined, probe: undefined };
      const broken = await this.#work(session);
      const heard = session.frames > 0;
      if (session.hangs && !this.#caller.connection.closed) {
        this.#caller.connection.moveOn(turn);
        return { heard, err: new UnavailableError("the node does not answer") };
      }
      if (broken) return { heard, err: this.#caller.failed(broken, turn) };
      return { heard, err: session.draining ? new UnavailableError("the broker is shutting down") : undefined };
    } catch (err) {
      if (err instanceof PawlError) return { heard: false, err };
      throw err;
    }
  }

  /** Returns what broke the stream, or undefined if it ended gracefully. */
  async #work(session: Session): Promise<ServiceError | undefined> {
    const { call } = session;
    const cancel = () => call.cancel();
    this.#caller.ended.addEventListener("abort", cancel);
    try {
      return await new Promise((resolve, reject) => {
        let broken: ServiceError | undefined;
        call.on("error", (err: ServiceError) => (broken = err));
        call.on("status", () => resolve(broken));
        call.on("data", (frame: WorkResponse) => {
          try {
            this.#receive(session, frame);
          } catch (err) {
            reject(err as Error);
            call.cancel();
          }
        });
        this.#session = session;
        call.write(this.#claims.attach(performance.now()));
        this.#hush(session);
        this.#logOpen(session.channel);
        this.ready();
      });
    } finally {
      this.#caller.ended.removeEventListener("abort", cancel);
      this.#session = undefined;
      clearTimeout(session.closing);
      clearTimeout(session.silence);
      clearTimeout(session.probe);
    }
  }

  /** Logs that the stream is open, once there is a connection. */
  #logOpen(channel: Client): void {
    if (this.#connecting.has(channel)) return; // for an earlier stream
    this.#connecting.add(channel);
    channel.waitForReady(Infinity, (err) => {
      this.#connecting.delete(channel);
      if (err || this.#session?.channel !== channel) return;
      const { worker, types } = this.#claims.hello;
      this.#claims.log.info(`work stream open: worker ${worker}, ${types.length} types, ${this.#claims.concurrency} slots`);
    });
  }

  #receive(session: Session, frame: WorkResponse): void {
    const now = performance.now();
    session.frames++;
    this.#silences = 0;
    this.#hush(session);
    if (frame.settled) this.#claims.settled(frame.settled, now);
    clearTimeout(session.probe);
    session.probe = this.#claims.awaiting ? this.#probeLater(session) : undefined;
    if (frame.quiet) this.#claims.setQuiet(frame.quiet);
    for (const lost of frame.lost) this.#claims.lose(lost.claimToken, lost.reason);
    if (frame.tasks.length > 0) this.#claims.accept(frame.tasks, now);
    if (frame.draining) {
      session.draining = true;
      this.#end(session);
    }
  }

  /** Starts waiting for the broker's next frame. */
  #hush(session: Session): void {
    const silence = Math.min(silentAfter * 2 ** Math.min(this.#silences, 10), maxSilence) * (1 + Math.random() / 4);
    clearTimeout(session.silence);
    session.silence = setTimeout(() => {
      this.#silences++;
      this.#end(session);
    }, silence);
  }

  /** Lets the stream send what there is, after everything else that happens at the same moment. */
  ready(): void {
    if (this.#flushing) return;
    this.#flushing = true;
    setImmediate(() => {
      this.#flushing = false;
      this.flush();
    });
  }

  /** Sends what there is. */
  flush(): void {
    const session = this.#session;
    if (!session || session.closing) return;
    for (let frame; (frame = this.#claims.nextFrame(performance.now())); ) {
      session.call.write(frame);
      if (frame.settle) session.probe ??= this.#probeLater(session);
    }
  }

  #probeLater(session: Session): NodeJS.Timeout {
    return setTimeout(() => this.#probe(session), probeAfter);
  }

  /**
   * Closes the connection of a stream whose node hangs. A node that is busy answers. If the answer is late, this process was stopped or busy
   * and has not read it yet: the next probe will show.
   */
  #probe(session: Session): void {
    const { channel, frames } = session;
    session.probe = this.#probeLater(session);
    if (channel.getChannel().getConnectivityState(false) === connectivityState.SHUTDOWN) { // by another worker of the client
      this.#leave(session);
      return;
    }
    void hangs(channel).then((does) => {
      if (does && session === this.#session && session.frames === frames) this.#leave(session);
    });
  }

  /** Ends a stream to a node that hangs, and has the next one opened over another connection. */
  #leave(session: Session): void {
    session.hangs = true;
    session.call.cancel();
    this.#caller.connection.discard(session.channel);
  }

  /**
   * Ends a stream gracefully: the broker pushes no more tasks, answers the frames it has, and ends the stream. Tasks it pushed before that
   * are still received.
   */
  #end(session: Session): void {
    if (session.closing) return;
    this.flush();
    session.closing = setTimeout(() => session.call.cancel(), closeTimeout);
    session.call.write(create(WorkRequestSchema, { quiet: true }));
    session.call.end();
  }

  /** Ends the stream gracefully, and opens no other. */
  close(): void {
    this.#closing.abort();
    if (this.#session) this.#end(this.#session);
  }
}
