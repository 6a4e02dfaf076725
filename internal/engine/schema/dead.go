package schema

import "google.golang.org/protobuf/encoding/protowire"

// DecodeDead decodes the row of a task in the index of the dead. Rows of earlier releases may lack the fingerprint or the type.
func DecodeDead(row []byte) (print uint64, typ string, err error) {
	if len(row) == 0 {
		return 0, "", nil
	}
	err = Decode(row, func(tag protowire.Number, v uint64) {
		if tag == 1 {
			print = v
		}
	}, func(tag protowire.Number, b []byte) {
		if tag == 2 {
			typ = string(b)
		}
	})
	return print, typ, err
}
