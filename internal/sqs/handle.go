package sqs

import (
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"

	"github.com/pawlq/pawl/internal/sqs/wire"
	"github.com/pawlq/pawl/internal/task"
)

const handleVersion = 1

// handle returns a receipt handle: the task and the unguessable token of its claim, and a checksum that also covers the queue, so
// that a handle is valid for its own queue only.
func handle(queue string, id task.ID, t task.Token) string {
	b := make([]byte, 0, 64)
	b = append(append(b, handleVersion), id[:]...)
	b = binary.AppendUvarint(b, t.Epoch)
	b = binary.AppendUvarint(b, t.Fence)
	b = binary.BigEndian.AppendUint64(b, t.Nonce)
	return base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint32(b, checksum(queue, b)))
}

func checksum(queue string, b []byte) uint32 {
	return crc32.Update(crc32.ChecksumIEEE([]byte(queue)), crc32.IEEETable, b)
}

// parseHandle is the inverse of handle.
func parseHandle(queue, s string) (id task.ID, t task.Token, err error) {
	bad := wire.ErrReceiptHandleIsInvalid.With(`The input receipt handle "%s" is not a valid receipt handle.`, task.Cut(s, 1024))
	const sum = 4
	b, wrong := base64.RawURLEncoding.DecodeString(s)
	if wrong != nil || len(b) < 1+len(id)+sum || b[0] != handleVersion {
		return id, t, bad
	}
	b, tail := b[:len(b)-sum], b[len(b)-sum:]
	if binary.BigEndian.Uint32(tail) != checksum(queue, b) {
		return id, t, bad
	}
	copy(id[:], b[1:])
	b = b[1+len(id):]
	var n, m int
	if t.Epoch, n = binary.Uvarint(b); n <= 0 {
		return id, t, bad
	}
	if t.Fence, m = binary.Uvarint(b[n:]); m <= 0 || len(b) != n+m+8 {
		return id, t, bad
	}
	t.Nonce = binary.BigEndian.Uint64(b[n+m:])
	return id, t, nil
}
