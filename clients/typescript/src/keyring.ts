/**
 * Encrypts the contents of tasks, with keys that the broker never sees: see docs/encryption.md. The format is that of the Go SDK's package
 * keyring, so that programs in all languages can read each other's tasks. It does not know calls or tasks.
 */

import { createCipheriv, createDecipheriv, createHmac, hkdfSync } from "node:crypto";

import { invalid } from "./errors.js";

const secretBytes = 32;
const saltBytes = 24;
const tagBytes = 16;
const nonce = new Uint8Array(12); // each message has its own key, so that no nonce is used twice with a key
const version = 1;
const maxKeys = 100;
const encryptedType = "application/vnd.pawl.encrypted";

/** The length of the longest content type that can be encrypted, in bytes. */
export const MAX_CONTENT_TYPE = 255;

/** A secret with which payloads and results are encrypted before they leave the program. */
export interface Key {
  /** Letters, digits and . _ -, up to 64. It is not secret. */
  id: string;
  /** 32 random bytes. */
  secret: Uint8Array;
}

/** The options of a keyring. */
export interface KeyringOptions {
  /**
   * Queues from which operators may have moved tasks. A payload is encrypted for its queue, and is otherwise considered forged in another.
   */
  acceptFrom?: readonly string[];
  /** Poisons tasks whose payloads are not encrypted. */
  onlyEncrypted?: boolean;
}

/** Encrypted data cannot be read because the keyring lacks its key. Another worker may have it. */
export class Unreadable extends Error {
  override name = "Unreadable";
}

/** Encrypted data is not authentic: nobody with the keys encrypted it for this place. */
export class Forged extends Unreadable {
  override name = "Forged";
}

/** The place that encrypted data belongs to. It cannot be opened anywhere else. */
export type Place = readonly string[];

/**
 * Encrypts payloads, results and checkpoints with AES-256-GCM. The first key encrypts, and all keys decrypt, so that a key can be replaced.
 *
 *     const client = new Client({ keyring: new Keyring([{ id: "2026-11", secret }]) });
 */
export class Keyring {
  readonly acceptFrom: readonly string[];
  readonly onlyEncrypted: boolean;
  readonly #keys = new Map<string, Uint8Array>();
  readonly #first: Key;
  readonly #salts: Buffer;

  constructor(keys: readonly Key[], options: KeyringOptions = {}) {
    const [first] = keys;
    if (!first || keys.length > maxKeys) throw invalid("keys", `${keys.length} keys, want 1 to ${maxKeys}`);
    for (const [at, { id, secret }] of keys.entries()) {
      if (!/^[A-Za-z0-9._-]{1,64}$/.test(id)) throw invalid(`keys[${at}].id`, `${JSON.stringify(id)} is not letters, digits and . _ -, 1 to 64`);
      if (secret.length !== secretBytes) throw invalid(`keys[${at}].secret`, `has ${secret.length} bytes, want ${secretBytes}`);
      if (this.#keys.has(id)) throw invalid(`keys[${at}].id`, `"${id}" is given twice`);
      this.#keys.set(id, Uint8Array.from(secret));
    }
    this.#first = first;
    this.#salts = derive(first.secret, new Uint8Array(), "pawl salts v1");
    this.acceptFrom = options.acceptFrom ?? [];
    this.onlyEncrypted = options.onlyEncrypted ?? false;
  }

  /**
   * Encrypts data for a place, and returns it with its new content type. The same data in the same request encrypts to the same bytes, so
   * that the broker recognizes a retry.
   */
  seal(place: Place, request: string, contentType: string, data: Uint8Array): { data: Uint8Array; contentType: string } {
    const kind = Buffer.from(contentType);
    if (kind.length > MAX_CONTENT_TYPE) throw invalid("content_type", `has ${kind.length} bytes, at most ${MAX_CONTENT_TYPE} can be encrypted`);
    const plain = Buffer.concat([Buffer.from([kind.length]), kind, data]);
    const about = aboutOf(place);
    const mac = createHmac("sha256", this.#salts);
    for (const part of [about, Buffer.from(request), plain]) mac.update(uvarint(part.length)).update(part);
    const salt = mac.digest().subarray(0, saltBytes);
    const cipher = createCipheriv("aes-256-gcm", derive(this.#first.secret, salt, "pawl message v1"), nonce);
    cipher.setAAD(about);
    const sealed = Buffer.concat([cipher.update(plain), cipher.final()]);
    const id = Buffer.from(this.#first.id);
    const out = Buffer.concat([Buffer.from([version, id.length]), id, salt, sealed, cipher.getAuthTag()]);
    return { data: out, contentType: `${encryptedType}; key=${this.#first.id}` };
  }

  /** The inverse of seal. Throws Unreadable or Forged. */
  open(place: Place, given: Uint8Array): { data: Uint8Array; contentType: string } {
    const sealed = Buffer.from(given);
    const end = 2 + (sealed[1] ?? 0);
    if (sealed[0] !== version || sealed.length < end + saltBytes) throw new Forged("it does not have the format of encrypted data");
    const id = sealed.subarray(2, end).toString();
    const secret = this.#keys.get(id);
    if (!secret) throw new Unreadable(`it is encrypted with key "${id}", which the keyring lacks`);
    const body = sealed.subarray(end + saltBytes);
    const plain = decrypt(derive(secret, sealed.subarray(end, end + saltBytes), "pawl message v1"), body, aboutOf(place));
    const kind = plain?.[0];
    if (!plain || kind === undefined || plain.length < 1 + kind) throw new Forged(`it is not what was encrypted for ${JSON.stringify(place)} with key "${id}"`);
    return { data: plain.subarray(1 + kind), contentType: plain.subarray(1, 1 + kind).toString() };
  }
}

function decrypt(key: Buffer, body: Buffer, about: Buffer): Buffer | undefined {
  if (body.length < tagBytes) return undefined;
  const decipher = createDecipheriv("aes-256-gcm", key, nonce, { authTagLength: tagBytes });
  decipher.setAAD(about);
  decipher.setAuthTag(body.subarray(-tagBytes));
  try {
    return Buffer.concat([decipher.update(body.subarray(0, -tagBytes)), decipher.final()]);
  } catch {
    return undefined;
  }
}

/** Replaces the content type of a payload that is refused because it is not encrypted. */
export const NOT_ENCRYPTED = `${encryptedType}; key=`;

/** Returns the id of the key with which data of a content type is encrypted; undefined if it is not encrypted. */
export function encryptedWith(contentType: string): string | undefined {
  if (contentType === encryptedType) return "";
  return contentType.startsWith(NOT_ENCRYPTED) ? contentType.slice(NOT_ENCRYPTED.length) : undefined;
}

function aboutOf(place: Place): Buffer {
  const parts = place.map((each) => Buffer.from(each));
  return Buffer.concat([Buffer.from([version]), ...parts.flatMap((part) => [uvarint(part.length), part])]);
}

function uvarint(n: number): Buffer {
  const out: number[] = [];
  for (; n > 0x7f; n = Math.floor(n / 128)) out.push((n % 128) | 0x80);
  return Buffer.from([...out, n]);
}

function derive(secret: Uint8Array, salt: Uint8Array, info: string): Buffer {
  return Buffer.from(hkdfSync("sha256", secret, salt, info, secretBytes));
}
