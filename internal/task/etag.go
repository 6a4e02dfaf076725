package task

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
)

// Edited is the editable content of an object: its parts, each with the name of its field. It has an ETag, with which a change can
// state what it is based on; nothing of it is stored.
type Edited []EditedPart

// EditedPart is a field with its value, which must have a unique encoding in JSON.
type EditedPart struct {
	Field string
	Value any
}

const (
	// etagPart is how many bytes of a tag stand for a part. They only need to distinguish values that people enter: a user who constructs a
	// collision may change both objects anyway.
	etagPart = 8
	// maxETag bounds a tag from outside, in bytes.
	maxETag = 256
)

// digest returns the bytes of the tag.
func (e Edited) digest() []byte {
	all := make([]byte, 0, etagPart*len(e))
	for _, p := range e {
		b, err := json.Marshal(p.Value)
		if err != nil {
			panic(err) // values are strings, numbers, bytes and checked specs
		}
		sum := sha256.Sum256(b)
		all = append(all, sum[:etagPart]...)
	}
	return all
}

// ETag returns a tag that changes whenever a part does.
func (e Edited) ETag() string { return base64.RawURLEncoding.EncodeToString(e.digest()) }

// Check refuses a change that is based on another version with a conflict that names the fields that differ by now. An empty tag always
// passes.
func (e Edited) Check(etag string) error {
	if etag == "" {
		return nil
	}
	asked, err := base64.RawURLEncoding.DecodeString(etag)
	now := e.digest()
	switch {
	case len(etag) > maxETag || err != nil || len(asked)%etagPart != 0:
		return Invalid(FieldIfETag, "%q is not an etag: use the etag of a read", clip(etag))
	case slices.Equal(asked, now):
		return nil
	case len(asked) != len(now): // of another release
		return Changed("any field may have" + byNow)
	}
	var fields []string
	for i, p := range e {
		if at := i * etagPart; !slices.Equal(asked[at:at+etagPart], now[at:at+etagPart]) {
			fields = append(fields, p.Field)
		}
	}
	if len(fields) == 1 {
		return Changed(fields[0] + " has" + byNow)
	}
	last := len(fields) - 1
	return Changed(strings.Join(fields[:last], ", ") + " and " + fields[last] + " have" + byNow)
}

// FieldIfETag is the field in which a change states the tag that it is based on.
const FieldIfETag = "if_etag"

const byNow = " changed in the meantime: read it again before you retry"

// Changed refuses a change that is based on another version.
func Changed(what string) error {
	return &Error{Code: CodeConflict, Field: FieldIfETag, Message: FieldIfETag + ": " + what}
}
