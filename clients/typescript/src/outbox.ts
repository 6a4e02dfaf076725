/** What a worker has to send to the broker: endings of claims, and extensions of leases. */

import { create } from "@bufbuild/protobuf";

import { add, MAX_BYTES, sizeOf } from "./ending.js";
import { SettleRequestSchema, type SettleRequest } from "./gen/pawl/v1/worker_pb.js";
import { maxSettle } from "./limits.js";
import { extension, type Held } from "./held.js";

const maxFrames = 2; // unanswered frames with endings of a shard, beyond which its endings are gathered for the next frame

/** The endings of one shard's claims. A shard that does not answer holds up no endings of the others. */
class Endings {
  waiting: Held[] = [];
  #frames: number[] = []; // number of endings in each unanswered frame, oldest first

  get full(): boolean {
    return this.#frames.length >= maxFrames;
  }

  get awaiting(): boolean {
    return this.#frames.length > 0;
  }

  sent(n: number): void {
    this.waiting.splice(0, n);
    if (n > 0) this.#frames.push(n);
  }

  /**
   * Counts the response to an ending. Those of a shard come in the order of the frames, except that a refusal may overtake others: then the
   * oldest frame counts as answered, and the newest has as many responses to come.
   */
  answered(): void {
    const [first] = this.#frames;
    if (first === undefined) return;
    if (first === 1) this.#frames.shift();
    else this.#frames[0] = first - 1;
  }
}

/** What has to be sent over one stream. */
export class Outbox {
  /** Claims whose leases should be extended. */
  extends: Held[] = [];
  readonly #endings = new Map<string, Endings>(); // by shard

  /** Returns the endings of a task's shard, which is in the digits after the version of its id. */
  #of(taskId: string): Endings {
    const shard = taskId.slice(14, 18);
    let endings = this.#endings.get(shard);
    if (!endings) this.#endings.set(shard, (endings = new Endings()));
    return endings;
  }

  /** Queues the ending of a claim. */
  add(held: Held): void {
    this.#of(held.name.taskId).waiting.push(held);
  }

  /**
   * Returns a frame with extensions, and with the endings of shards that have room for another frame; undefined if there is nothing to send.
   * ready reports whether it has endings, or none wait for room.
   */
  take(now: number): { frame: SettleRequest | undefined; ready: boolean } {
    const frame = create(SettleRequestSchema);
    const extended = this.extends.splice(0, maxSettle);
    for (const held of extended) if (held.phase === "running") frame.extends.push(extension(held, now));
    const limit = maxSettle - extended.length;
    let size = 0;
    let taken = 0;
    let waits = false;
    for (const shard of this.#endings.values()) {
      if (shard.full) {
        waits ||= shard.waiting.length > 0;
        continue;
      }
      let n = 0;
      for (; n < Math.min(shard.waiting.length, limit - taken); n++) {
        const ending = shard.waiting[n]?.ending;
        if (!ending) continue;
        size += sizeOf(ending);
        if (taken + n > 0 && size > MAX_BYTES) break;
        add(ending, frame);
      }
      shard.sent(n);
      taken += n;
    }
    return { frame: taken > 0 || frame.extends.length > 0 ? frame : undefined, ready: taken > 0 || !waits };
  }

  /** Reports whether responses to endings are awaited. */
  get awaiting(): boolean {
    for (const shard of this.#endings.values()) if (shard.awaiting) return true;
    return false;
  }

  /** Counts the response to an ending. */
  answered(taskId: string): void {
    this.#of(taskId).answered();
  }
}
