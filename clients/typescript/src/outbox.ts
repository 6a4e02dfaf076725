/** What a worker has to send to the broker: endings of claims, and extensions of leases. */

import { create } from "@bufbuild/protobuf";

import { add, MAX_BYTES, MAX_ITEMS, sizeOf } from "./ending.js";
import { SettleRequestSchema, type SettleRequest } from "./gen/pawl/v1/worker_pb.js";
import { extension, type Held } from "./held.js";

const maxFrames = 2; // unanswered frames of endings, beyond which endings are gathered for the next frame

/** What has to be sent over one stream. */
export class Outbox {
  /** Endings that have not been sent. */
  endings: Held[] = [];
  /** Claims whose leases should be extended. */
  extends: Held[] = [];
  #frames: number[] = []; // number of endings in each unanswered frame

  /** Reports whether another frame of endings can be sent. */
  get room(): boolean {
    return this.#frames.length < maxFrames;
  }

  /**
   * Returns a frame with extensions and, if there is room for another frame of endings, with endings; undefined if there is nothing to
   * send.
   */
  take(now: number): SettleRequest | undefined {
    const frame = create(SettleRequestSchema);
    const extended = this.extends.splice(0, MAX_ITEMS);
    for (const held of extended) if (held.phase === "running") frame.extends.push(extension(held, now));
    const limit = this.room ? Math.min(this.endings.length, MAX_ITEMS - extended.length) : 0;
    let size = 0;
    let n = 0;
    for (; n < limit; n++) {
      const ending = this.endings[n]?.ending;
      if (!ending) continue;
      size += sizeOf(ending);
      if (n > 0 && size > MAX_BYTES) break;
      add(ending, frame);
    }
    this.endings.splice(0, n);
    if (n > 0) this.#frames.push(n);
    return n > 0 || frame.extends.length > 0 ? frame : undefined;
  }

  /** Counts responses to endings, which come in the order of the frames. */
  answered(n: number): void {
    for (let first = this.#frames[0]; n > 0 && first !== undefined; first = this.#frames[0]) {
      if (first > n) {
        this.#frames[0] = first - n;
        return;
      }
      n -= first;
      this.#frames.shift();
    }
  }
}
