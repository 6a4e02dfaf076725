package wire

import (
	"crypto/md5" // #nosec G501 -- the protocol's checksum against corruption, not against forgery
	"encoding/binary"
	"encoding/hex"
	"maps"
	"slices"
	"strings"
)

// MD5 returns the checksum of a body.
func MD5(body string) string {
	sum := md5.Sum([]byte(body)) // #nosec G401 -- see the import
	return hex.EncodeToString(sum[:])
}

// Transport types in the checksum of attributes.
const (
	transportString = 1
	transportBinary = 2
)

// MD5OfAttributes returns the checksum of a message's attributes, in the order of their names; "" if there are none.
func MD5OfAttributes(all map[string]Attribute) string {
	if len(all) == 0 {
		return ""
	}
	var b []byte
	add := func(s string) {
		b = binary.BigEndian.AppendUint32(b, uint32(len(s))) // #nosec G115 -- a message has at most 1 MiB
		b = append(b, s...)
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		a := all[name]
		add(name)
		add(a.DataType)
		if strings.HasPrefix(a.DataType, "Binary") {
			b = append(b, transportBinary)
			add(string(a.BinaryValue))
			continue
		}
		b = append(b, transportString)
		value := ""
		if a.StringValue != nil {
			value = *a.StringValue
		}
		add(value)
	}
	sum := md5.Sum(b) // #nosec G401 -- see the import
	return hex.EncodeToString(sum[:])
}
