/** The common base of the operators' calls. */

import type { DescMessage, DescMethodUnary, MessageInitShape, MessageShape } from "@bufbuild/protobuf";

import { write } from "./messages.js";
import type { Caller, CallLimits } from "./rpc.js";

export class Calls {
  protected readonly caller: Caller;

  constructor(caller: Caller) {
    this.caller = caller;
  }

  /** Makes a call with a request of these fields. */
  protected async call<I extends DescMessage, O extends DescMessage>(method: DescMethodUnary<I, O>, fields: object, limits?: CallLimits): Promise<MessageShape<O>> {
    return this.caller.call(method, write(method.input, fields) as MessageInitShape<I>, limits);
  }
}
