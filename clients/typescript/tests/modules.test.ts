/** The modules of the package: imports run down only, those for types too, so that each can be read without those above it. */

import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";

const source = join(import.meta.dirname, "../../src");

test("imports run down only", () => {
  const files = readdirSync(source).filter((file) => file.endsWith(".ts"));
  const below = new Map(files.map((file) => [file, [...readFileSync(join(source, file), "utf8").matchAll(/from "\.\/(\w+)\.js"/g)].map(([, name]) => `${name}.ts`)]));
  assert.ok(below.size > 25 && below.get("models.ts")?.includes("convert.ts"));
  const done = new Set<string>();
  const visit = (file: string, way: readonly string[]): void => {
    assert.ok(!way.includes(file), `a circle: ${[...way, file].join(" -> ")}`);
    if (done.has(file)) return;
    for (const next of below.get(file) ?? []) visit(next, [...way, file]);
    done.add(file);
  };
  for (const file of files) visit(file, []);
});
