/** Reads a google.rpc.Status. None of the dependencies has its generated code, and only the list of details is needed. */

import { fromBinary } from "@bufbuild/protobuf";
import { BinaryReader, WireType } from "@bufbuild/protobuf/wire";
import { AnySchema, type Any } from "@bufbuild/protobuf/wkt";

const detailsField = 3;

/** Returns the details of a status. Throws if the bytes are not a message. */
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
