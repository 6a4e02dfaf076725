/** Reads a google.rpc.Status. No package that this one needs has its generated code, and the list of details is all that is wanted. */

import { fromBinary } from "@bufbuild/protobuf";
import { BinaryReader, WireType } from "@bufbuild/protobuf/wire";
import { AnySchema, type Any } from "@bufbuild/protobuf/wkt";

const detailsField = 3;

/** Returns the details of a status. It throws if the bytes are no message. */
export function statusDetails(data: Uint8Array): Any[] {
  const reader = new BinaryReader(data);
  const out: Any[] = [];
  while (reader.pos < reader.len) {
    const [field, wireType] = reader.tag();
    if (field === detailsField && wireType === WireType.LengthDelimited) out.push(fromBinary(AnySchema, reader.bytes()));
    else reader.skip(wireType, field);
  }
  return out;
}
