/** Converts protobuf messages to plain objects and back: durations in milliseconds, times as Dates, enums as words, numbers as numbers. */

import { create, isMessage, type DescEnum, type DescField, type DescMessage, type Message, type MessageShape } from "@bufbuild/protobuf";
import { DurationSchema, FeatureSet_FieldPresence, TimestampSchema } from "@bufbuild/protobuf/wkt";
import { reflect } from "@bufbuild/protobuf/reflect";

import { duration, integer, millisecondsOf, number, perSecond, rateLimit, show, string, timeOf, timestamp, Words, type Duration } from "./convert.js";
import { invalid } from "./errors.js";

type Fields = Record<string, unknown>;

/** Converts a message to a plain object. Unset fields are undefined, except numbers, strings, lists and durations. */
export function read<T>(schema: DescMessage, message: Message): T {
  const out: Fields = {};
  for (const field of schema.fields) out[field.localName] = readField(field, (message as unknown as Fields)[field.localName]);
  return out as T;
}

function readField(field: DescField, value: unknown): unknown {
  if (field.fieldKind === "list") return (value as unknown[]).map((each) => readValue(field.message, field.enum, each));
  if (field.fieldKind === "map") {
    return Object.fromEntries(Object.entries(value as Fields).map(([key, each]) => [key, readValue(field.message, field.enum, each)]));
  }
  if (value === undefined && field.message?.typeName === DurationSchema.typeName) return 0;
  return readValue(field.message, field.enum, value);
}

function readValue(schema: DescMessage | undefined, words: DescEnum | undefined, value: unknown): unknown {
  if (isMessage(value, DurationSchema)) return millisecondsOf(value);
  if (isMessage(value, TimestampSchema)) return timeOf(value);
  if (words) return wordsOf(words).word(value as number);
  if (schema && value !== undefined) return read(schema, value as Message);
  return typeof value === "bigint" ? Number(value) : value;
}

/** Converts a plain object to a message. Fields that are left out get the broker's defaults; unknown fields are refused. */
export function write<S extends DescMessage>(schema: S, given: object, path = ""): MessageShape<S> {
  const out = create(schema);
  const into = reflect(schema, out);
  for (const [name, value] of Object.entries(given)) {
    const field = schema.fields.find((each) => each.localName === name);
    if (!field) throw invalid(path + name, `is not known: want ${schema.fields.map((each) => each.localName).join(", ")}`);
    const at = `${path}${field.name}`;
    if (value === "" && field.presence === FeatureSet_FieldPresence.EXPLICIT) throw invalid(at, "is empty: leave it out");
    if (value === undefined || value === "" || (value === 0 && field.message?.typeName === DurationSchema.typeName)) continue;
    if (field.fieldKind === "list") {
      if (!Array.isArray(value)) throw invalid(at, `${show(value)} is not an array`);
      (out as unknown as Fields)[name] = value.map((each) => writeValue(field, each, at));
    } else if (field.fieldKind === "map") {
      const entries = Object.entries(value as Fields).map(([key, each]) => [key, writeValue(field, each, `${at}[${show(key)}]`)]);
      (out as unknown as Fields)[name] = Object.fromEntries(entries);
    } else {
      const written = writeValue(field, value, at);
      if (field.fieldKind === "message") (out as unknown as Fields)[name] = written;
      else into.set(field, written as never);
    }
  }
  return out;
}

function writeValue(field: DescField, value: unknown, at: string): unknown {
  if (field.message?.typeName === DurationSchema.typeName) return duration(at, value as Duration);
  if (field.message?.typeName === TimestampSchema.typeName) return timestamp(at, value as Date);
  if (field.message?.typeName === "pawl.v1.Rate" && typeof value === "string") return value === "none" ? undefined : write(field.message, rateLimit(at, value), `${at}.`);
  if (field.message) return write(field.message, value as object, `${at}.`);
  if (field.enum) return wordsOf(field.enum).number(at, value as string);
  if (typeof value === "boolean") return value;
  if (typeof value === "string") return "scalar" in field && field.scalar === 1 ? perSecond(at, value) : string(at, value); // 1: double
  const whole = "scalar" in field && field.scalar !== undefined && field.scalar !== 1 && field.scalar !== 2; // neither double nor float
  if (!whole) return number(at, value as number);
  if (!isLong(field)) return integer(at, value as number);
  if (!Number.isSafeInteger(value)) throw invalid(at, `${show(value)} is not an integer`);
  return BigInt(value as number);
}

const longs = new Set([3, 4, 6, 16, 18]); // the 64-bit scalars

function isLong(field: DescField): boolean {
  return "scalar" in field && field.scalar !== undefined && longs.has(field.scalar);
}

const known = new WeakMap<DescEnum, Words<string>>();

function wordsOf(of: DescEnum): Words<string> {
  let out = known.get(of);
  if (!out) known.set(of, (out = new Words<string>(Object.fromEntries(of.values.map(({ localName, number }) => [localName, number])))));
  return out;
}
