/** Connects to a broker or to the nodes of a cluster. It knows addresses and channels, not calls. */

import { readFileSync, statSync } from "node:fs";
import { isIPv4 } from "node:net";
import { createSecureContext } from "node:tls";

import { Client, credentials, Metadata, type ChannelCredentials, type ClientOptions } from "@grpc/grpc-js";

import { messageOf, show } from "./convert.js";
import { ClientClosedError, invalid, UnauthenticatedError } from "./errors.js";
import { maxMessage } from "./limits.js";

const defaultServer = "127.0.0.1:7295";
const defaultPort = "7295";
const maxAddresses = 32; // more nodes than a client would ever try

/** A token that identifies the caller. A function is called for every request, so that the token can change while the program runs. */
export type Token = string | (() => string | Promise<string>);

/**
 * The PEM files for a TLS connection. Without caFile, the certificate authorities that Node trusts are used. Files that are replaced while the
 * program runs are read again.
 */
export interface TLS {
  caFile?: string | undefined;
  certFile?: string | undefined;
  keyFile?: string | undefined;
}

/** The address of a broker, and the caller's credentials. What is left out is taken from the environment. */
export interface ConnectionOptions {
  /** "host:port", "host", "https://host:port" or "unix:///path"; for a cluster, several addresses separated by commas. */
  server?: string;
  token?: Token;
  namespace?: string;
  tls?: TLS;
  /** Allows connections to other machines without TLS, for a network that you trust. */
  plaintext?: boolean;
}

const channelOptions: ClientOptions = {
  "grpc.max_send_message_length": maxMessage,
  "grpc.max_receive_message_length": maxMessage,
  "grpc.enable_retries": 0, // rpc.ts decides which calls to retry
  "grpc.use_local_subchannel_pool": 1,
  "grpc.initial_reconnect_backoff_ms": 50,
  "grpc.max_reconnect_backoff_ms": 2000,
};
const pings = {
  calls: {}, // watch.ts probes their connection instead
  // A worker's stream is in flight all the time. It has a connection of its own, which the worker probes when it awaits an answer, because
  // pings every 2 seconds of 10,000 workers without tasks would take a sixth of a core of the server.
  stream: { "grpc.keepalive_time_ms": 10_000, "grpc.keepalive_timeout_ms": 5000 },
};

/** Where a client's calls go, for spans. */
export interface Server {
  address: string;
  port: number | undefined;
}

function serverOf(addresses: readonly string[]): Server {
  const [only = ""] = addresses.length === 1 ? addresses : [];
  const [, host = only, port] = /^\[?([^\]/]*)\]?:(\d+)$/.exec(only) ?? [];
  return { address: host, port: port === undefined ? undefined : Number(port) };
}

/**
 * The channels to the addresses of one broker or cluster. Calls use one address until it can't be reached; any node of a cluster accepts
 * any call. The first call opens the channels.
 */
export class Connection {
  readonly #targets: string[];
  readonly #tls: TLS | undefined;
  #credentials: ChannelCredentials;
  #stamps: string; // of the files that #credentials come from
  readonly #token: Token | undefined;
  readonly namespace: string;
  /** What another connection to the same place needs, without the token. */
  readonly options: ConnectionOptions;
  /** As given by the program, for spans; "" if there are several. */
  readonly server: Server;
  readonly #channels = new Map<string, Client>();
  readonly #left: Client[] = []; // with earlier certificates: the streams of workers go on
  #turn = 0;
  #closed = false;

  constructor(options: ConnectionOptions, environment: NodeJS.ProcessEnv = process.env) {
    const given = (options.server || environment["PAWL_SERVER"] || defaultServer).split(",").map((address) => address.trim());
    if (given.length > maxAddresses) throw invalid("server", `${given.length} addresses, at most ${maxAddresses} are allowed`);
    const { addresses, tls } = withTLS(given, options.tls ?? tlsOf(environment));
    this.#targets = shuffled(addresses.map((address) => target(address, tls !== undefined || options.plaintext === true)));
    this.server = serverOf(addresses);
    this.#tls = tls;
    this.#stamps = stampsOf(tls);
    this.#credentials = tls ? secure(tls) : credentials.createInsecure();
    this.#token = options.token ?? tokenOf(environment);
    this.namespace = options.namespace ?? environment["PAWL_NAMESPACE"] ?? "";
    this.options = { server: given.join(","), namespace: this.namespace, plaintext: options.plaintext === true, ...(tls && { tls }) };
  }

  /** Returns the channel in use for calls, or for the streams of workers, and a number that identifies the choice for moveOn. */
  channel(use: keyof typeof pings = "calls"): { channel: Client; turn: number } {
    if (this.#closed) throw new ClientClosedError();
    this.#renew();
    const address = this.#targets[this.#turn % this.#targets.length] ?? "";
    const key = `${use} ${address}`;
    let channel = this.#channels.get(key);
    if (!channel) {
      const local = isLoopback(hostOf(address)); // a proxy's own loopback interface is another one
      channel = new Client(address, this.#credentials, { ...channelOptions, ...pings[use], "grpc.enable_http_proxy": local ? 0 : 1 });
      this.#channels.set(key, channel);
    }
    return { channel, turn: this.#turn };
  }

  /** Reads the certificates again if their files have changed. Calls in flight end on the channels on which they began. */
  #renew(): void {
    const stamps = stampsOf(this.#tls);
    if (!this.#tls || stamps === this.#stamps) return;
    try {
      this.#credentials = secure(this.#tls);
    } catch {
      return; // they are being replaced: the next call looks again
    }
    this.#stamps = stamps;
    for (const [key, channel] of this.#channels) {
      if (key.startsWith("stream ")) this.#left.push(channel);
      else channel.close();
    }
    this.#channels.clear();
  }

  /** Moves from an address that did not answer to the next one, unless another call has already done so. */
  moveOn(turn: number): void {
    if (turn === this.#turn) this.#turn++;
  }

  /** Closes a channel whose node hangs, once the calls in flight there have ended. The next call opens another. */
  discard(channel: Client): void {
    for (const [key, each] of this.#channels) if (each === channel) this.#channels.delete(key);
    channel.close();
  }

  /** Returns the metadata that identifies the caller. */
  async metadata(): Promise<Metadata> {
    const out = new Metadata();
    if (this.namespace) out.set("pawl-namespace", this.namespace);
    const token = await this.token();
    if (token) out.set("authorization", `Bearer ${token}`);
    return out;
  }

  /** Returns the token that identifies the caller, if there is one. */
  async token(): Promise<string | undefined> {
    try {
      return typeof this.#token === "function" ? await this.#token() : this.#token;
    } catch (err) {
      throw new UnauthenticatedError(`no token: ${messageOf(err)}`, { cause: err }); // for example, the file is gone; a worker retries
    }
  }

  /** Reports whether close was called. */
  get closed(): boolean {
    return this.#closed;
  }

  /** Ends the calls in flight, and closes the connections. */
  close(): void {
    this.#closed = true;
    for (const channel of [...this.#channels.values(), ...this.#left]) channel.close();
    this.#channels.clear();
  }
}

/**
 * Strips https:// from the addresses. Either all or none must have it: no call may go out in plaintext just because it went to another
 * node.
 */
function withTLS(addresses: string[], tls: TLS | undefined): { addresses: string[]; tls: TLS | undefined } {
  const prefix = "https://";
  const encrypted = addresses.filter((address) => address.startsWith(prefix));
  if (encrypted.length === 0) return { addresses, tls };
  if (encrypted.length < addresses.length) {
    throw invalid("server", `${encrypted.length} of ${addresses.length} addresses have https://: give it to all or to none`);
  }
  const bare = addresses.map((address) => address.slice(prefix.length));
  const wrong = bare.findIndex((address) => address.includes("/") || !address.includes(":"));
  if (wrong >= 0) throw invalid("server", `${show(addresses[wrong])} is not https://host:port`);
  return { addresses: bare, tls: tls ?? {} };
}

/** Checks "host", "host:port" or "unix:///path", and returns it in gRPC's notation. */
function target(address: string, mayLeave: boolean): string {
  if (address.startsWith("unix:")) return address;
  const { host, port } = split(address);
  if (!host || /[/ ]/.test(host) || !/^\d{1,5}$/.test(port) || Number(port) < 1 || Number(port) > 65535) {
    throw invalid("server", `${show(address)} is not host:port`);
  }
  if (!mayLeave && !isLoopback(host)) {
    throw invalid("server", `${show(address)} is not on this machine: use https://, or plaintext: true for a network that you trust`);
  }
  return host.includes(":") ? `dns:///[${host}]:${port}` : `dns:///${host}:${port}`;
}

function split(address: string): { host: string; port: string } {
  const bracketed = /^\[([^\]]*)\](?::(.*))?$/.exec(address);
  if (bracketed) return { host: bracketed[1] ?? "", port: bracketed[2] ?? defaultPort };
  const parts = address.split(":");
  return parts.length === 2 ? { host: parts[0] ?? "", port: parts[1] ?? "" } : { host: address, port: defaultPort };
}

/** Returns the host of a target. */
function hostOf(target: string): string {
  return split(target.replace("dns:///", "")).host;
}

function isLoopback(host: string): boolean {
  return host === "localhost" || host === "::1" || (isIPv4(host) && host.startsWith("127."));
}

function shuffled(targets: string[]): string[] {
  const at = Math.floor(Math.random() * targets.length); // spreads clients over the nodes of a cluster
  return [...targets.slice(at), ...targets.slice(0, at)];
}

/** Reads the files, and refuses files that are missing or don't match. */
function secure(tls: TLS): ChannelCredentials {
  if ((tls.certFile === undefined) !== (tls.keyFile === undefined)) throw invalid("tls", "certFile and keyFile must be given together");
  try {
    const [ca, cert, key] = [tls.caFile, tls.certFile, tls.keyFile].map((file) => (file ? readFileSync(file) : undefined));
    return credentials.createFromSecureContext(createSecureContext({ ca, cert, key })); // without ca, Node adds those of NODE_EXTRA_CA_CERTS
  } catch (err) {
    const files = [tls.caFile, tls.certFile, tls.keyFile].filter((file) => file).join(", ");
    throw invalid("tls", `${files}: ${messageOf(err)}`, err);
  }
}

/** Returns what changes when a file is replaced or rewritten. */
function stampsOf(tls: TLS | undefined): string {
  const stampOf = (file: string | undefined) => {
    try {
      const is = file ? statSync(file, { bigint: true }) : undefined;
      return is && `${is.ino} ${is.mtimeNs} ${is.size}`;
    } catch {
      return "unreadable";
    }
  };
  return [tls?.caFile, tls?.certFile, tls?.keyFile].map(stampOf).join();
}

function tokenOf(environment: NodeJS.ProcessEnv): Token | undefined {
  const file = environment["PAWL_TOKEN_FILE"];
  if (environment["PAWL_TOKEN"]) return environment["PAWL_TOKEN"];
  return file ? () => readFileSync(file, "utf8").trim() : undefined;
}

function tlsOf(environment: NodeJS.ProcessEnv): TLS | undefined {
  const tls = { caFile: environment["PAWL_TLS_CA"], certFile: environment["PAWL_CLIENT_CERT"], keyFile: environment["PAWL_CLIENT_KEY"] };
  return tls.caFile || tls.certFile || tls.keyFile ? tls : undefined;
}
