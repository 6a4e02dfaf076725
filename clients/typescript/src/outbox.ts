/** What a worker's broker is to be told: ends of claims, and extensions of leases. */

import { create } from "@bufbuild/protobuf";

import { add, MAX_BYTES, MAX_ITEMS, sizeOf } from "./ending.js";
import { SettleRequestSchema, type SettleRequest } from "./gen/pawl/v1/worker_pb.js";
import { extension, type Held } from "./held.js";

const maxFrames = 2; // frames of endings that may wait for their answers before the next gathers

/** What is to be told over one stream. */
export class Outbox {
  /** Ends that were not sent. */
  endings: Held[] = [];
  /** Claims whose leases are to be extended. */
  extends: Held[] = [];
  #frames: number[] = []; // the endings of each frame that has no answer yet

  /** Reports whether another frame of endings may be sent. */
  get room(): boolean {
    return this.#frames.length < maxFrames;
  }

  /** Fills a frame with extensions and, if there is room for one more frame of endings, with those; undefined if there is nothing to tell. */
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

  /** Counts answers to endings, which come in the order of the frames. */
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
