/** The calls of stories, made with the TypeScript SDK: what they take and give is in REST's words. */

import {
  BatchError,
  Call,
  decodeMemberResult,
  decodePayload,
  decodeResult,
  defineTask,
  PawlError,
  Ref,
  type Claim,
  type Client,
  type Filter,
  type GroupInfo,
  type GroupOptions,
  type Made,
  type Operation,
  type OperationSpec,
  type Queue,
  type QueueSettings,
  type Schedule,
  type ScheduleOptions,
  type TaskInfo,
  type TaskOptions,
} from "../src/index.js";

export type JSONObject = Record<string, unknown>;

/** A refusal, in REST's words. */
export function refused(err: PawlError): JSONObject {
  return { code: err.code, reason: err.reason, field: err.field, state: err.state };
}

/** Names as TypeScript has them: max_attempts is maxAttempts. */
function camel(given: JSONObject): JSONObject {
  return Object.fromEntries(Object.entries(given).map(([name, value]) => [name.replace(/_(.)/g, (_, letter: string) => letter.toUpperCase()), value]));
}

/** Names as REST has them. */
function snake(given: object): JSONObject {
  return Object.fromEntries(Object.entries(given).map(([name, value]) => [name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`), value]));
}

/** A task that a story describes. */
function call(given: JSONObject): Call {
  const { type, payload, contentType = "", then = [], ...options } = camel(given);
  if (typeof options["runAt"] === "string") options["runAt"] = new Date(Date.now() + Number.parseFloat(options["runAt"]) * 3_600_000);
  if (options["unique"]) options["unique"] = camel(options["unique"] as JSONObject);
  const task = defineTask(String(type), { contentType: String(contentType) });
  const args = contentType ? Buffer.from(String(payload), "base64") : payload;
  return task.call(args, options as TaskOptions).followedBy(...callsOf(then));
}

function callsOf(given: unknown): Call[] {
  return (given as JSONObject[]).map(call);
}

function refOf(made: Ref): JSONObject {
  return { task_id: made.id, state: made.state, duplicate: made.duplicate };
}

function many(made: readonly Made[]): JSONObject[] {
  return made.map((each) => (each instanceof PawlError ? { refused: refused(each) } : each ? refOf(each) : {}));
}

/** A payload or a result, as REST shows it. */
function data(value: Uint8Array, contentType: string, decode: () => unknown): unknown {
  return contentType === "" || contentType === "application/json" ? decode() : Buffer.from(value).toString("base64");
}

function taskOf(info: TaskInfo): JSONObject {
  const log = info.attemptLog.map((attempt) => snake(attempt));
  const payload = data(info.payload, info.contentType, () => decodePayload(info));
  const result = data(info.result, info.resultContentType, () => decodeResult(info));
  return { ...snake(info), task_id: info.id, payload, result, attempt_log: log, then: info.then.map(snake) };
}

/** What a handler has in its hands. */
export function claimOf(claim: Claim): JSONObject {
  const payload = data(claim.payload, claim.contentType, () => claim.decodePayload());
  return { ...snake(claim), task_id: claim.id, payload, parent: claim.parent && snake(claim.parent) };
}

function groupOf(info: GroupInfo): JSONObject {
  return { ...snake(info), group_id: info.id };
}

function scheduleOf(of: Schedule): JSONObject {
  const { type, payload, options } = of.task;
  const task = { type, queue: options.queue, payload: JSON.parse(Buffer.from(payload).toString() || "null") as unknown };
  return { ...snake(of), paused: of.pause !== undefined, paused_reason: of.pause?.reason, task };
}

async function answers(made: Promise<readonly Made[]>): Promise<JSONObject[]> {
  try {
    return many(await made);
  } catch (err) {
    if (!(err instanceof BatchError)) throw err;
    return many(err.results as Made[]);
  }
}

async function createGroup(client: Client, given: JSONObject): Promise<JSONObject> {
  const { tasks, ...rest } = camel(given);
  const options = Object.fromEntries(Object.entries(rest).map(([name, value]) => [name, name.startsWith("on") ? call(value as JSONObject) : value]));
  const made = await client.enqueueGroup(callsOf(tasks), options as GroupOptions);
  return { group_id: made.id, duplicate: made.duplicate, tasks: many(made.tasks) };
}

async function putSchedule(client: Client, given: JSONObject): Promise<JSONObject> {
  const { name, task, ...options } = camel(given);
  const change = await client.schedules.put(String(name), call(task as JSONObject), options as ScheduleOptions);
  return { change: change.change, schedule: scheduleOf(change.schedule), before: change.before && scheduleOf(change.before) };
}

async function members(client: Client, given: JSONObject): Promise<JSONObject[]> {
  const out: JSONObject[] = [];
  for await (const member of client.group(String(given["group"])).members()) out.push({ ...snake(member), result: decodeMemberResult(member) });
  return out;
}

async function findWorker(client: Client, given: JSONObject): Promise<JSONObject> {
  for await (const worker of client.admin.workers.list()) {
    if (worker.worker === given["worker"]) return { ...snake(worker), tasks: worker.tasks.map(snake) };
  }
  throw new Error(`there is no worker ${String(given["worker"])}`);
}

function queueOf(of: Queue): JSONObject {
  return { ...snake(of), settings: snake(of.settings) };
}

function operationOf(of: Operation): JSONObject {
  return { ...snake(of), action: of.spec.action };
}

type CallOf = (client: Client, given: JSONObject) => Promise<unknown>;

const task = (client: Client, given: JSONObject): Ref => client.ref(String(given["task"]));
const group = (client: Client, given: JSONObject) => client.group(String(given["group"]));
const reason = (given: JSONObject): string => String(given["reason"] ?? "");
const queue = (given: JSONObject): string => String(given["queue"]);
const acting = (client: Client, given: JSONObject): Client["admin"] => (given["actor"] ? client.admin.withActor(String(given["actor"])) : client.admin);
const name = (given: JSONObject): string => String(given["name"]);

export const calls: Record<string, CallOf> = {
  enqueue: async (client, g) => refOf(await client.enqueue(call(g))),
  enqueue_many: (client, g) => answers((async () => client.enqueueMany(callsOf(g["tasks"])))()),
  get: async (client, g) => taskOf(await task(client, g).info()),
  wait: async (client, g) => taskOf(await task(client, g).waitEnded()),
  result: async (client, g) => task(client, g).result(),
  cancel: async (client, g) => taskOf(await task(client, g).cancel(reason(g))),
  create_group: createGroup,
  get_group: async (client, g) => groupOf(await group(client, g).info()),
  add_to_group: (client, g) => answers(group(client, g).add(callsOf(g["tasks"]))),
  wait_group: async (client, g) => groupOf(await group(client, g).waitEnded()),
  close_group: async (client, g) => groupOf(await group(client, g).close()),
  cancel_group: async (client, g) => groupOf(await group(client, g).cancel(reason(g))),
  group_members: members,
  put_schedule: putSchedule,
  get_schedule: async (client, g) => scheduleOf(await client.schedules.get(name(g))),
  delete_schedule: (client, g) => client.schedules.delete(name(g)),
  pause_schedule: async (client, g) => scheduleOf(await client.schedules.pause(name(g), reason(g))),
  resume_schedule: async (client, g) => scheduleOf(await client.schedules.resume(name(g))),
  trigger_schedule: async (client, g) => refOf(await client.schedules.trigger(name(g))),
  set_queue: async (client, g) => queueOf(await client.admin.queues.put(queue(g), camel(g["settings"] as JSONObject) as QueueSettings)),
  get_queue: async (client, g) => queueOf(await client.admin.queues.get(queue(g))),
  pause_queue: async (client, g) => queueOf(await acting(client, g).queues.pause(queue(g), reason(g))),
  resume_queue: async (client, g) => queueOf(await client.admin.queues.resume(queue(g))),
  purge_queue: async (client, g) => ({ discarded: await client.admin.queues.purge(queue(g)) }),
  queue_stats: async (client, g) => ({ queue: queue(g), totals: (await client.admin.queues.stats(queue(g))).totals }),
  explain: async (client, g) => snake(await client.admin.tasks.explain(String(g["task"]))),
  run_now: async (client, g) => taskOf(await client.admin.tasks.runNow(String(g["task"]))),
  retry_task: async (client, g) => taskOf(await client.admin.tasks.retry(String(g["task"]))),
  dead_groups: async (client, g) => ({ groups: await client.admin.deadLetters.groups(queue(g)) }),
  start_operation: async (client, g) => {
    const { action, filter } = g as { action: OperationSpec["action"]; filter: Filter };
    return operationOf(await client.admin.operations.start({ action, filter }, reason(g)));
  },
  get_operation: async (client, g) => operationOf(await client.admin.operations.get(String(g["operation"]))),
  find_worker: findWorker,
};
