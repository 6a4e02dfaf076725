/** The package as it is shipped, installed in a project of its own; the programs of docs/typescript.md, of docs/coming-from-bullmq.md and of the README run there as they stand. */

import assert from "node:assert/strict";
import { execFileSync, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";

import { OPTION_NAMES } from "../src/options.js";
import { newQueue, world } from "./world.js";

const root = fileURLToPath(new URL("../../", import.meta.url));
const tsc = join(root, "node_modules/typescript/bin/tsc");
const guide = readFileSync(join(root, "../../docs/typescript.md"), "utf8");
const fromBullMQ = readFileSync(join(root, "../../docs/coming-from-bullmq.md"), "utf8");
const readme = readFileSync(join(root, "README.md"), "utf8");

const w = world();
let project: string;

before(() => {
  project = mkdtempSync(join(tmpdir(), "pawl-project-"));
  execFileSync("npm", ["pack", "--loglevel=error", "--pack-destination", project], { cwd: root, stdio: "ignore" });
  writeFileSync(join(project, "package.json"), '{"name":"project","private":true,"type":"module"}');
  const [archive] = readdirSync(project).filter((name) => name.endsWith(".tgz"));
  const flags = ["--prefer-offline", "--no-audit", "--no-fund", "--loglevel=error"];
  execFileSync("npm", ["install", ...flags, `./${archive}`], { cwd: project, stdio: "ignore" });
  assert(existsSync(join(project, "node_modules/@types/node"))); // which comes with grpc-js
});

after(() => rmSync(project, { recursive: true, force: true }));

/** Compiles files in a directory of the project, as strictly as can be. */
function compile(directory: string, files: Record<string, string>): string {
  const out = join(project, directory);
  mkdirSync(out);
  for (const [name, code] of Object.entries(files)) writeFileSync(join(out, name), code);
  const flags = ["--strict", "--noUncheckedIndexedAccess", "--module", "nodenext", "--target", "es2022", "--types", "node"];
  const done = spawnSync(process.execPath, [tsc, ...flags, ...Object.keys(files)], { cwd: out, encoding: "utf8" });
  assert.equal(done.status, 0, done.stdout);
  return out;
}

/** The programs of a page, which take the server's address from the environment. */
function programsOf(page: string): Record<string, string> {
  const blocks = [...page.matchAll(/```ts\n\/\/ (\S+\.ts)\n([^]*?)```/g)].map(([, name = "", code = ""]): [string, string] => [name, code]);
  const programs = Object.fromEntries(blocks);
  const tasks = programs["tasks.ts"] ?? "";
  assert(tasks.includes('new Client("127.0.0.1:7295")')); // where a server is by default
  return { ...programs, "tasks.ts": tasks.replace('new Client("127.0.0.1:7295")', "new Client()") };
}

function run(cwd: string, ...args: string[]): string {
  const { NODE_TEST_CONTEXT: _, ...environment } = process.env; // these tests are run by another
  const done = spawnSync(process.execPath, args, { cwd, encoding: "utf8", env: { ...environment, PAWL_SERVER: w.broker.address } });
  assert.equal(done.status, 0, done.stdout + done.stderr);
  return done.stdout;
}

for (const [name, page] of Object.entries({ readme, guide, fromBullMQ })) {
  test(`the first task of the ${name}`, async () => {
    const programs = compile(name, programsOf(page));
    const [, command = ""] = /^npx pawl-worker (\.\/tasks\.js .*?) *#/m.exec(page)!;
    const worker = spawn(join(project, "node_modules/.bin/pawl-worker"), command.split(" "), {
      cwd: programs,
      env: { ...process.env, PAWL_SERVER: w.broker.address },
      stdio: ["ignore", "inherit", "pipe"],
    });
    try {
      assert.equal(run(programs, "main.js"), "welcome, a@example.com\n");
    } finally {
      worker.kill("SIGTERM");
      const [status] = (await once(worker, "exit")) as [number];
      assert.equal(status, 0);
    }
  });
}

test("the other programs of the guide", async () => {
  const programs = compile("others", programsOf(guide));
  assert.deepEqual(Object.keys(programsOf(guide)), ["tasks.ts", "main.ts", "web.ts", "tasks.test.ts"]);
  assert.match(run(programs, "--test", "tasks.test.js"), /pass 1\n/);
  const visit = `
    import { web } from "./web.js";
    import { client } from "./tasks.js";
    web.listen(0, "127.0.0.1", async () => {
      const answer = await fetch("http://127.0.0.1:" + web.address().port + "/?email=a@example.com", { method: "POST" });
      const { task } = await answer.json();
      console.log(answer.status, (await client.ref(task).info()).type);
      process.exit();
    });`;
  assert.equal(run(programs, "--input-type=module", "-e", visit), "202 mail.welcome\n");
});

test("the fragments of the guide have the right types", () => {
  const names = [...readFileSync(join(root, "src/index.ts"), "utf8").matchAll(/export \{ ?([^}]*)\}/g)]
    .flatMap(([, list = ""]) => list.split(","))
    .map((name) => name.trim())
    .filter((name) => /^[A-Za-z]/.test(name) && !name.startsWith("type "));
  const fragments = [...guide.matchAll(/```ts\n(?!\/\/ \S+\.ts\n)([^]*?)```/g)].map(([, code]) => `{\n${code}}\n`);
  assert(fragments.length >= 8);
  const context = `
    import { ${names.join(", ")} } from "@pawlq/pawl";
    declare const client: Client, claim: Claim, order: string, url: string;
    declare function shrink(image: Uint8Array): Promise<Uint8Array>;
    declare function store(part: unknown): Promise<void>;
    declare function pay(order: string): Promise<{ id: string }>;
    declare function readToken(): Promise<string>;
    const onWelcome = handle(defineTask<null>("welcome"), () => {});
    const fetchPage = defineTask<string>("fetch"), resize = defineTask<number>("resize"), part = defineTask<number>("part");
    const mail = defineTask<null>("mail"), report = defineTask<null>("report"), alarm = defineTask<null>("alarm");
  `;
  compile("fragments", { "fragments.ts": context + fragments.join("") });
});

test("CommonJS programs require the package", () => {
  const program = `
    import { Client } from "@pawlq/pawl";
    import { Broker } from "@pawlq/pawl/testing";
    console.log(typeof Client, typeof Broker, typeof require);`;
  assert.equal(run(compile("common", { "common.cts": program }), "common.cjs"), "function function function\n");
  const same = 'import("@pawlq/pawl").then((module) => console.log(module.Client === require("@pawlq/pawl").Client))';
  assert.equal(run(project, "--input-type=commonjs", "-e", same), "true\n");
});

test("wrong arguments and results are errors of types", () => {
  const wrong = `
    import { Client, defineTask, handle } from "@pawlq/pawl";
    const task = defineTask<{ to: string }, string>("t");
    declare const client: Client;
    // @ts-expect-error
    void client.enqueue(task, { to: 1 });
    // @ts-expect-error
    void client.enqueue(task, { to: "a" }, { dealy: 1 });
    // @ts-expect-error
    handle(task, () => 1);
    // @ts-expect-error
    defineTask("t", { priority: "urgent" });
    export const result: Promise<string> = client.enqueue(task, { to: "a" }).then((ref) => ref.result());
  `;
  compile("wrong", { "wrong.ts": wrong });
});

test("the archive has the license, and no tests", () => {
  const installed = join(project, "node_modules/@pawlq/pawl");
  assert.deepEqual(readdirSync(installed).sort(), ["LICENSE", "README.md", "dist", "package.json"]);
  assert(existsSync(join(installed, "dist/index.d.ts")));
});

test("the guide names all options", () => {
  const table = guide.slice(guide.indexOf("| option |"), guide.indexOf("Durations are numbers"));
  const named = table.split("\n").flatMap((line) => [...(line.split("|")[1] ?? "").matchAll(/`(\w+)`/g)].map(([, name]) => name));
  assert.deepEqual(named.sort(), [...OPTION_NAMES].sort());
});

test("the generated code is what the protos say", (t) => {
  const out = join(project, newQueue());
  mkdirSync(out);
  const done = spawnSync(join(root, "generate.sh"), [out], { encoding: "utf8" });
  if (done.status !== 0 && !existsSync(join(root, "../../.cache/protoc-gen-es/versions"))) return t.skip("its generator could not be installed");
  assert.equal(done.status, 0, done.stderr);
  const filesOf = (directory: string) => {
    const names = readdirSync(directory, { recursive: true, encoding: "utf8" }).filter((name) => name.endsWith(".ts"));
    return Object.fromEntries(names.sort().map((name) => [name, readFileSync(join(directory, name), "utf8")]));
  };
  assert.deepEqual(filesOf(out), filesOf(join(root, "src/gen")));
});
