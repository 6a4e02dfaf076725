/** The contents of a task's checkpoint: the handler's own bytes, and the results of steps. It does not know claims or calls. */

import { decode, encode } from "./convert.js";
import { invalid } from "./errors.js";
import { maxCheckpoint } from "./limits.js";

/** The start of encrypted bytes where the broker requires JSON. */
export const wrapped = '{"pawl_encrypted":"';

const stepsMember = "pawl_steps";
const ownMember = "checkpoint";
const none = new Uint8Array();

/**
 * Without steps, a checkpoint is the handler's own, byte for byte. The first step turns it into an object around both, which programs without
 * this package can read too:
 *
 *     {"pawl_steps": {"charge": "ch_7"}, "checkpoint": {"page": 3}}
 */
export class Kept {
  /** steps: the result of each step as JSON. */
  constructor(
    readonly own: Uint8Array = none,
    readonly steps: ReadonlyMap<string, string> = new Map(),
  ) {}

  /** Parses a checkpoint. If it is not a container, it is the handler's own. */
  static of(checkpoint: Uint8Array): Kept {
    const outer = membersOf(checkpoint);
    const steps = outer?.get(stepsMember);
    const own = outer?.get(ownMember);
    if (!outer || steps === undefined || outer.size > (own === undefined ? 1 : 2)) return new Kept(checkpoint);
    const inner = membersOf(Buffer.from(steps));
    return inner ? new Kept(own === undefined ? none : Buffer.from(own), inner) : new Kept(checkpoint);
  }

  /** Returns a copy with another checkpoint of the handler. */
  withOwn(own: Uint8Array): Kept {
    return new Kept(own, this.steps);
  }

  /** Returns a copy with the result of another step. */
  withStep(name: string, result: string): Kept {
    return new Kept(this.own, new Map([...this.steps, [name, result]]));
  }

  /** Throws if no step can be stored next to the handler's checkpoint. */
  checkRoom(): void {
    try {
      decode(this.own);
    } catch (err) {
      throw invalid("checkpoint", "is not JSON, so no step result can be stored with it", err);
    }
  }

  /** The inverse of Kept.of. If the handler's own checkpoint would be read as a container, or as encrypted, it is put into one. */
  encode(): Uint8Array {
    const data = this.steps.size === 0 && Kept.of(this.own).own === this.own && !isWrapped(this.own) ? this.own : this.#container();
    if (data.length > maxCheckpoint) {
      const beside = this.steps.size > 0 ? `, with ${this.steps.size} steps and the handler's own ${this.own.length} bytes` : "";
      throw invalid("checkpoint", `${data.length} bytes${beside}; at most ${maxCheckpoint}`);
    }
    return data;
  }

  #container(): Uint8Array {
    const steps = [...this.steps].map(([name, result]) => `${JSON.stringify(name)}:${result}`).join(",");
    const own = this.own.length > 0 ? `,"${ownMember}":${Buffer.from(this.own).toString()}` : "";
    return Buffer.from(`{"${stepsMember}":{${steps}}${own}}`);
  }
}

/** Reports whether JSON contains encrypted bytes, or looks as if it did. */
export function isWrapped(data: Uint8Array): boolean {
  return Buffer.from(data.subarray(0, wrapped.length)).toString("latin1") === wrapped;
}

/**
 * Returns the members of an object, each as its original JSON, because decoding and encoding would lose digits of large integers from other
 * SDKs. Returns undefined if data is not an object.
 */
function membersOf(data: Uint8Array): Map<string, string> | undefined {
  let value: unknown;
  try {
    value = decode(data);
  } catch {
    return undefined;
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) return undefined;
  const json = Buffer.from(data).toString();
  const out = new Map<string, string>();
  for (let at = json.indexOf("{") + 1; at < json.length; ) {
    const colon = json.indexOf(":", endOf(json, json.indexOf('"', at), ":"));
    if (colon < 0) break; // after the last member, or the object is empty
    const name = JSON.parse(json.slice(at, colon)) as string;
    const end = endOf(json, colon + 1, ",");
    out.set(name, json.slice(colon + 1, end).trim());
    at = end + 1;
  }
  return out;
}

/** Returns where the value at a position of well-formed JSON ends: before a separator, or before the enclosing bracket. */
function endOf(json: string, at: number, separator: string): number {
  if (at < 0) return json.length;
  for (let depth = 0; at < json.length; at++) {
    const c = json[at];
    if (c === '"') while (json[++at] !== '"') at += json[at] === "\\" ? 1 : 0;
    else if (depth === 0 && (c === separator || c === "}" || c === "]")) break;
    else if (c === "{" || c === "[") depth++;
    else if (c === "}" || c === "]") depth--;
  }
  return at;
}

/** Encodes the result of a step, or a checkpoint. */
export function jsonOf(field: string, value: unknown): string {
  return Buffer.from(encode(field, value)).toString();
}
