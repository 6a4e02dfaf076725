/** Payloads: each value is written in a notation that the broker takes for it, and what JSON does not have is refused. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";

import { encode } from "../src/convert.js";
import { InvalidArgumentError } from "../src/index.js";

interface Vector {
  about: string;
  equal?: string[];
  inexact?: string[];
  refused?: string[];
}

const vectors = JSON.parse(readFileSync(join(import.meta.dirname, "../../../../test/conformance/outside/payloads.json"), "utf8")) as Vector[];
const written = (value: unknown) => Buffer.from(encode("payload", value)).toString();

for (const { about, equal = [], inexact = [], refused = [] } of vectors) {
  test(`payloads: ${about}`, () => {
    for (const text of equal) {
      const out = written(JSON.parse(text));
      if (!inexact.includes("typescript")) assert.ok(equal.includes(out), `${text} is written as ${out}`);
    }
    for (const text of refused) assert.throws(() => written(JSON.parse(text)), InvalidArgumentError);
  });
}

test("what JSON does not have is refused, and nothing that looks like it", () => {
  for (const value of [NaN, Infinity, [{ a: -Infinity }], 1n]) assert.throws(() => written(value), InvalidArgumentError);
  for (const value of ["\\ud800", "\\\\ud800", "😀", "\\😀\\ud", "null", { "\\ude00": "\\" }]) assert.deepEqual(JSON.parse(written(value)), value);
  assert.throws(() => written("\\\ud800"), InvalidArgumentError);
});
