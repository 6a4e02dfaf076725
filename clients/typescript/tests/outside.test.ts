/** The stories that all SDKs and REST must tell alike, and the TypeScript column of the table of what each SDK has. */

import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";

import * as pawl from "../src/index.js";
import { OPTION_NAMES } from "../src/options.js";
import * as testing from "../src/testing.js";
import { features, lacks, Play, stories, Untrue } from "./outside.js";
import { world } from "./world.js";

describe("stories", { concurrency: 8 }, () => {
  const w = world();
  for (const story of stories()) {
    const missing = lacks(story);
    test(story.name, { skip: missing ? `TypeScript has no ${missing}` : false }, async () => {
      await new Play(w.client).tell(story).catch((err: unknown) => {
        throw err instanceof Untrue ? new Error(`${story.says}\n${err.message}`) : err;
      });
    });
  }
});

test("the table names what there is", () => {
  const exported = { ...pawl, testing } as Record<string, unknown>;
  const root = join(import.meta.dirname, "../..");
  const sources = readdirSync(join(root, "src"))
    .filter((file) => file.endsWith(".ts"))
    .map((file) => readFileSync(join(root, "src", file), "utf8"))
    .join("\n");
  for (const { typescript } of features()) {
    if (!typescript) continue;
    if (typescript.startsWith("bin ")) {
      const { bin } = JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as { bin: Record<string, string> };
      assert.ok(bin[typescript.slice(4)], typescript);
      continue;
    }
    if (typescript.startsWith("@")) {
      assert.ok(readFileSync(join(root, "package.json"), "utf8").includes(`"peerDependencies": { "${typescript}"`), typescript);
      continue;
    }
    const [name = "", member = ""] = typescript.split(".");
    if (name === "TaskOptions") assert.ok(OPTION_NAMES.includes(member), typescript);
    else if (name === "testing") assert.ok(member in testing, typescript);
    else if (name in exported) {
      const { prototype } = exported[name] as { prototype: object };
      assert.ok(!member || member in prototype || new RegExp(`readonly ${member}[:?]`).test(sources), typescript);
    } else assert.match(sources, new RegExp(`export interface ${name} [^]*?\\n  ${member}\\?:`), typescript);
  }
});
