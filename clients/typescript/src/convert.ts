/** Converts JavaScript values to those of the API and back: enums, times, durations, JSON. */

import { create } from "@bufbuild/protobuf";
import { DurationSchema, TimestampSchema, type Duration as DurationMessage, type Timestamp } from "@bufbuild/protobuf/wkt";

import { invalid } from "./errors.js";

/** A duration: a number of milliseconds, or a string such as "90s", "1h30m" or "250ms". A day is "24h". */
export type Duration = number | string;

export const JSON_TYPE = "application/json";

const utf8 = new TextEncoder();
const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** Translates the values of a protobuf enum to the words that REST uses, and back. */
export class Words<W extends string> {
  readonly #numbers = new Map<string, number>();
  readonly #words = new Map<number, W>();

  constructor(generated: Record<string, string | number>) {
    for (const [name, number] of Object.entries(generated)) {
      if (typeof number !== "number" || number === 0) continue;
      const word = name.toLowerCase() as W;
      this.#numbers.set(word, number);
      this.#words.set(number, word);
    }
  }

  /** Returns the word, or "" for an unspecified value and for values of newer brokers. */
  word(number: number): W | "" {
    return this.#words.get(number) ?? "";
  }

  /** Returns the value of a word. */
  number(field: string, word: string): number {
    const number = this.#numbers.get(word);
    if (number === undefined) throw invalid(field, `${show(word)} is not one of ${[...this.#numbers.keys()].join(", ")}`);
    return number;
  }
}

const units: Record<string, number> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000 };
const maxMilliseconds = 10_000 * 366 * 86_400_000;

/** Returns a duration in milliseconds. The caller decides whether it may be negative. */
export function milliseconds(field: string, value: Duration): number {
  const ms = typeof value === "string" ? parse(field, value) : value;
  if (typeof ms !== "number") throw invalid(field, `${show(value)} is neither a number of milliseconds nor a text such as "90s"`);
  if (!Number.isFinite(ms) || Math.abs(ms) > maxMilliseconds) throw invalid(field, `${show(value)} is beyond 10,000 years`);
  return ms;
}

const durationText = /^-?(\d+(\.\d+)?(ms|s|m|h))+$/;

function parse(field: string, value: string): number {
  if (!durationText.test(value)) {
    throw invalid(field, `${show(value)} is not a duration: want numbers followed by ms, s, m or h, such as "1h30m"`);
  }
  let ms = 0;
  for (const [, number, unit] of value.matchAll(/(\d+(?:\.\d+)?)(ms|s|m|h)/g)) ms += Number(number) * (units[unit ?? ""] ?? 0);
  return value.startsWith("-") ? -ms : ms;
}

/** Parses a rate as the command line does: how many in how many milliseconds. A number alone is per second. */
export function rate(field: string, text: string): { n: number; per: number } {
  const [, number = "", given = "s"] = /^([^/]*)(?:\/(.+))?$/.exec(text.replaceAll(" ", "")) ?? [];
  const unit = /^\d/.test(given) ? given : `1${given}`;
  const n = /^[\d,.]+$/.test(number) ? Number(number.replaceAll(",", "")) : NaN;
  let per = 0;
  if (/^[\d.]+d$/.test(unit)) per = Number(unit.slice(0, -1)) * 86_400_000;
  else if (durationText.test(unit)) per = parse(field, unit);
  if (!(n > 0 && n <= 1e15 && per > 0 && per <= maxMilliseconds)) throw invalid(field, `${show(text)} is not a rate such as 50/s, 30/m, 1000/h or 100/10s`);
  return { n, per };
}

/** Returns a rate as a number per second. */
export function perSecond(field: string, value: number | string): number {
  if (typeof value !== "string") return value;
  const { n, per } = rate(field, value);
  return (n / per) * 1000;
}

/** Parses the rate of a limit, which is a whole number in some milliseconds. */
export function rateLimit(field: string, text: string): { limit: number; period: number } {
  const { n, per } = rate(field, text);
  if (Number.isInteger(n) && n < 2 ** 31) return { limit: n, period: per };
  throw invalid(field, `${show(text)}: a limit is a whole number of tasks; use a longer period for few tasks, such as 1/10s`);
}

/** Returns a duration for protobuf. */
export function duration(field: string, value: Duration): DurationMessage {
  const ms = milliseconds(field, value);
  const seconds = Math.trunc(ms / 1000);
  return create(DurationSchema, { seconds: BigInt(seconds), nanos: Math.round((ms - seconds * 1000) * 1e6) });
}

/** Returns a protobuf duration in milliseconds, or 0 if it is not set. */
export function millisecondsOf(p: DurationMessage | undefined): number {
  return p ? Number(p.seconds) * 1000 + p.nanos / 1e6 : 0;
}

/** Returns a time for protobuf. */
export function timestamp(field: string, value: Date): Timestamp {
  const ms = value instanceof Date ? value.getTime() : NaN;
  if (Number.isNaN(ms)) throw invalid(field, `${show(value)} is not a valid Date`);
  const seconds = Math.floor(ms / 1000);
  return create(TimestampSchema, { seconds: BigInt(seconds), nanos: (ms - seconds * 1000) * 1_000_000 });
}

/** Returns a protobuf time, or undefined if it is not set. */
export function timeOf(p: Timestamp | undefined): Date | undefined {
  if (!p || (p.seconds === 0n && p.nanos === 0)) return undefined;
  return new Date(Number(p.seconds) * 1000 + Math.floor(p.nanos / 1e6));
}

/** Checks a string from the program first, because protobuf would refuse the whole message. */
export function string(field: string, value: string): string {
  if (typeof value !== "string") throw invalid(field, `${show(value)} is not a string`);
  if (!value.isWellFormed()) throw invalid(field, `${show(value)} has a lone surrogate`);
  return value;
}

type Names = Readonly<Record<string, 0>>;

/**
 * Checks that options are an object without other keys than known ones, because a misspelled option would be ignored. hints say what Pawl has
 * instead of an option of another queue.
 */
export function known(what: string, options: object, names: Names, hints: Readonly<Record<string, string>> = {}): void {
  const all = Object.keys(names).join(", ");
  if (typeof options !== "object" || options === null || Array.isArray(options)) {
    throw new TypeError(`the options of ${what} are ${show(options)}, want an object with ${all}`);
  }
  for (const name of Object.keys(options)) {
    if (Object.hasOwn(names, name)) continue;
    const hint = Object.hasOwn(hints, name) ? `: ${hints[name]}` : "";
    throw new TypeError(`"${name}" is not an option of ${what}${hint}; it takes ${all}`);
  }
}

/** Checks an integer that has 32 bits in the API. */
export function integer(field: string, value: number): number {
  if (!Number.isInteger(value) || Math.abs(value) > 0x7fffffff) throw invalid(field, `${show(value)} is not an integer of 32 bits`);
  return value;
}

/** Checks a number. */
export function number(field: string, value: number): number {
  if (typeof value !== "number" || !Number.isFinite(value)) throw invalid(field, `${show(value)} is not a number`);
  return value;
}

/** Encodes a value as JSON. undefined becomes null, like a missing argument. Refuses what JSON does not have. */
export function encode(field: string, value: unknown): Uint8Array {
  let json: string | undefined;
  try {
    json = JSON.stringify(value === undefined ? null : value);
    if (json?.includes("null")) JSON.stringify(value, finite);
    if (json?.includes("\\ud") && !wellFormed(json)) throw new TypeError("it has half of a surrogate pair");
  } catch (err) {
    throw invalid(field, `cannot be encoded as JSON: ${messageOf(err)}`, err); // a cycle or a bigint, or what toJSON throws
  }
  if (json === undefined) throw invalid(field, `cannot be encoded as JSON: it is a ${typeof value}`);
  return utf8.encode(json);
}

/** Reports whether JSON has no escape of half a surrogate pair: JSON.stringify writes whole pairs without one. */
function wellFormed(json: string): boolean {
  return !/(?<!\\)(?:\\\\)*\\ud[89a-f]/.test(json);
}

/** Refuses the numbers and dates of which JSON.stringify makes null. */
function finite(this: Record<string, unknown>, key: string, value: unknown): unknown {
  const given = value === null ? this[key] : value; // a date that is not valid becomes null before
  if ((typeof given === "number" || given instanceof Number || given instanceof Date) && !Number.isFinite(Number(given))) {
    throw new TypeError(`JSON has no ${given}`);
  }
  return value;
}

/** Decodes JSON. Empty data is undefined. Throws a SyntaxError if it is not JSON. */
export function decode(data: Uint8Array): unknown {
  if (data.length === 0) return undefined;
  let json: string;
  try {
    json = text.decode(data);
  } catch {
    throw new SyntaxError("is not UTF-8");
  }
  return JSON.parse(json);
}

/** Decodes data with a content type from JSON. Throws a SyntaxError if it is something else. */
export function decodeAs(what: string, data: Uint8Array, contentType: string): unknown {
  if (contentType !== "" && contentType !== JSON_TYPE) throw new SyntaxError(`${what} is "${contentType}", not JSON`);
  try {
    return decode(data);
  } catch (err) {
    throw new SyntaxError(`${what}: ${messageOf(err)}`);
  }
}

/** Returns the length of a string in UTF-8 bytes. */
export function bytesOf(value: string): number {
  return Buffer.byteLength(value);
}

/** Truncates a string to limit bytes of UTF-8 that protobuf accepts. */
export function cut(value: string, limit: number): string {
  const data = utf8.encode(value);
  if (data.length <= limit) return value.toWellFormed();
  let end = limit;
  while (end > 0 && ((data[end] ?? 0) & 0xc0) === 0x80) end--; // not inside a character
  return text.decode(data.subarray(0, end));
}

/** Returns the message of a thrown value. */
export function messageOf(err: unknown): string {
  return err instanceof Error ? err.message : String(err);
}

/** Formats a value for an error message, in at most 100 characters. */
export function show(value: unknown): string {
  let out: string | undefined;
  try {
    out = typeof value === "string" ? JSON.stringify(value) : String(value);
  } catch {
    out = typeof value;
  }
  return out.length > 100 ? `${out.slice(0, 100)}…` : out;
}
