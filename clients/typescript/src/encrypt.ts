/**
 * Encrypts the contents of requests, and decrypts those of responses, for a client with a keyring. The calls don't know about it, so none can
 * forget it. What cannot be decrypted is left as it is: handlers get the reason, others can tell by the content type.
 */

import { clone, isMessage, type DescMessage, type Message, type MessageShape } from "@bufbuild/protobuf";

import { cut, messageOf } from "./convert.js";
import { ParentSchema, type Parent } from "./gen/pawl/v1/chain_pb.js";
import { GroupMemberSchema } from "./gen/pawl/v1/group_pb.js";
import { BeginOnceRequestSchema, BeginOnceResponseSchema, FinishOnceRequestSchema } from "./gen/pawl/v1/once_pb.js";
import { PutScheduleRequestSchema } from "./gen/pawl/v1/schedule_pb.js";
import { TaskSchema, TaskSpecSchema, type TaskSpec } from "./gen/pawl/v1/task_pb.js";
import type { AckRequest, ClaimedTask } from "./gen/pawl/v1/worker_pb.js";
import { isWrapped, wrapped } from "./kept.js";
import { encryptedWith, Forged, MAX_CONTENT_TYPE, NOT_ENCRYPTED, Unreadable, type Keyring, type Place } from "./keyring.js";

const parts: readonly DescMessage[] = [TaskSpecSchema, TaskSchema, GroupMemberSchema, ParentSchema, BeginOnceResponseSchema, FinishOnceRequestSchema];

/** The keyring of a client, and the namespace of its calls. */
export class Encryption {
  constructor(
    readonly keyring: Keyring,
    /** "" until it is known. */
    public namespace: string,
  ) {}

  /** Reports whether a request or response has something to encrypt or decrypt. */
  holds(message: Message): boolean {
    return !partsOf(message, "").next().done;
  }

  /** Encrypts the contents of a request. The request itself is not changed, because it may be sent again. */
  seal<S extends DescMessage>(schema: S, request: MessageShape<S>): MessageShape<S> {
    const out = clone(schema, request);
    const isSchedule = isMessage(out, PutScheduleRequestSchema);
    const outer = isSchedule ? `schedule ${out.spec?.name ?? ""}` : String((out as { requestId?: string }).requestId ?? "");
    for (const [part, path] of partsOf(out, "")) {
      if (isMessage(part, TaskSpecSchema)) this.#sealSpec(part, outer + path);
      else if (isMessage(part, FinishOnceRequestSchema)) part.result = this.#wrap(["once", this.namespace, part.key], part.result);
    }
    return out;
  }

  #sealSpec(spec: TaskSpec, outer: string): void {
    let request = outer;
    if (spec.unique && !spec.unique.key) request = ""; // the broker derives the key from the payload
    else if (spec.idempotencyKey) request = `idempotency ${spec.idempotencyKey}`;
    else if (spec.requestId) request = `request ${spec.requestId}`;
    spec.then.forEach((then, at) => this.#sealSpec(then, `${request} then ${at}`));
    if (encryptedWith(spec.contentType) !== undefined) return;
    const sealed = this.keyring.seal(["payload", this.namespace, spec.queue || "default", spec.type], request, spec.contentType, spec.payload);
    spec.payload = bytes(sealed.data);
    spec.contentType = sealed.contentType;
  }

  /** Encrypts a result in place. */
  sealResult(ack: AckRequest): void {
    if (ack.result.length === 0 || encryptedWith(ack.contentType) !== undefined) return;
    const sealed = this.keyring.seal(["result", this.namespace, ack.taskId], "", cut(ack.contentType, MAX_CONTENT_TYPE), ack.result);
    ack.result = bytes(sealed.data);
    ack.contentType = sealed.contentType;
  }

  /** Encrypts the checkpoint of a task of the given type. */
  sealCheckpoint(type: string, data: Uint8Array): Uint8Array {
    return this.#wrap(["checkpoint", this.namespace, type], data);
  }

  #wrap(place: Place, data: Uint8Array): Uint8Array<ArrayBuffer> {
    if (data.length === 0) return bytes(data);
    const sealed = this.keyring.seal(place, "", "", data).data;
    return bytes(Buffer.from(`${wrapped}${Buffer.from(sealed).toString("base64")}"}`));
  }

  #unwrap(place: Place, data: Uint8Array): Uint8Array<ArrayBuffer> {
    if (!isWrapped(data)) return bytes(data);
    const text = Buffer.from(data).toString();
    let sealed: Buffer;
    try {
      sealed = Buffer.from((JSON.parse(text) as { pawl_encrypted: string }).pawl_encrypted, "base64");
    } catch (err) {
      throw new Forged(`it does not have the format of encrypted data: ${messageOf(err)}`);
    }
    return bytes(this.keyring.open(place, sealed).data);
  }

  /** Decrypts the contents of a response, as far as the keyring can. */
  open(request: Message, answer: Message): void {
    for (const [part] of partsOf(answer, "")) {
      if (isMessage(part, TaskSpecSchema)) quietly(() => this.#openPayload(part, part.queue || "default"));
      else if (isMessage(part, TaskSchema)) {
        quietly(() => this.#openPayload(part, part.queue));
        quietly(() => (part.checkpoint = this.#unwrap(["checkpoint", this.namespace, part.type], part.checkpoint)));
        const opened = this.#result(part.taskId, part.result, part.resultContentType);
        if (opened) [part.result, part.resultContentType] = [bytes(opened.data), opened.contentType];
      } else if (isMessage(part, GroupMemberSchema)) {
        const opened = this.#result(part.taskId, part.result, part.resultContentType);
        if (opened) [part.result, part.resultContentType] = [bytes(opened.data), opened.contentType];
      } else if (isMessage(part, ParentSchema)) this.#openParent(part);
      else if (isMessage(part, BeginOnceResponseSchema) && isMessage(request, BeginOnceRequestSchema)) {
        part.result = this.#unwrap(["once", this.namespace, request.key], part.result);
      }
    }
  }

  /** Decrypts a claimed task in place, and returns why it can't be passed to its handler. */
  openClaimed(task: ClaimedTask): Unreadable | undefined {
    if (task.parent) this.#openParent(task.parent);
    if (encryptedWith(task.contentType) === undefined && this.keyring.onlyEncrypted) {
      task.payload = new Uint8Array();
      task.contentType = NOT_ENCRYPTED;
      return new Forged("payload: it is not encrypted, but the keyring accepts only encrypted data (onlyEncrypted)");
    }
    const open = () => (task.checkpoint = this.#unwrap(["checkpoint", this.namespace, task.type], task.checkpoint));
    return quietly(() => this.#openPayload(task, task.queue), "payload: ") ?? quietly(open, "checkpoint: ");
  }

  #openPayload(part: { payload: Uint8Array; contentType: string; type: string }, queue: string): void {
    if (encryptedWith(part.contentType) === undefined || part.payload.length === 0) return;
    for (const each of [queue, ...this.keyring.acceptFrom]) {
      try {
        const opened = this.keyring.open(["payload", this.namespace, each, part.type], part.payload);
        part.payload = bytes(opened.data);
        part.contentType = opened.contentType;
        return;
      } catch (err) {
        if (!(err instanceof Forged)) throw err;
      }
    }
    throw new Forged(`it is not what was encrypted for queue "${queue}" and type "${part.type}"`);
  }

  #openParent(part: Parent): void {
    const opened = this.#result(part.taskId, part.result, part.contentType);
    if (opened) [part.result, part.contentType] = [bytes(opened.data), opened.contentType];
  }

  #result(taskId: string, result: Uint8Array, contentType: string): { data: Uint8Array; contentType: string } | undefined {
    if (encryptedWith(contentType) === undefined || result.length === 0) return undefined;
    try {
      return this.keyring.open(["result", this.namespace, taskId], result);
    } catch (err) {
      if (err instanceof Unreadable) return undefined;
      throw err;
    }
  }
}

/** The bytes of generated messages must have their own ArrayBuffer. */
function bytes(data: Uint8Array): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(data);
}

function quietly(open: () => void, what = ""): Unreadable | undefined {
  try {
    open();
    return undefined;
  } catch (err) {
    if (err instanceof Forged) return new Forged(what + err.message);
    if (err instanceof Unreadable) return new Unreadable(what + err.message);
    throw err;
  }
}

/** Iterates over the parts of a message that hold encrypted contents, with their paths. */
function* partsOf(message: object, path: string): Generator<[Message, string], void, undefined> {
  if (parts.some((schema) => isMessage(message, schema))) yield [message as Message, path];
  if (isMessage(message, TaskSpecSchema)) return; // its follow-up tasks are encrypted with it
  for (const [name, value] of Object.entries(message)) {
    const at = `${path}.${name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)}`;
    if (Array.isArray(value)) for (const [n, each] of value.entries()) if (isMessage(each)) yield* partsOf(each, `${at}[${n}]`);
    if (isMessage(value)) yield* partsOf(value, at);
  }
}
