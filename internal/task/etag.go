package task

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
)

// Edited is what can be edited of something: its parts, each by the name of its field. It has a tag, by which a change can say what
// it was made from; nothing of it is stored.
type Edited []EditedPart

// EditedPart is a field and what stands in it, which must have one encoding as JSON.
type EditedPart struct {
	Field string
	Value any
}

const (
	// etagPart is how many bytes of a tag stand for a part. They tell values apart that people put in; whoever makes two that look alike
	// may change either.
	etagPart = 8
	// maxETag bounds a tag that comes from outside, in bytes.
	maxETag = 256
)

// marks are the bytes of the tag.
func (e Edited) marks() []byte {
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

// ETag is a tag that is another one if a part is.
func (e Edited) ETag() string { return base64.RawURLEncoding.EncodeToString(e.marks()) }

// Check refuses a change that was made from something else than what is there: conflict, which names the fields that are others by
// now. An empty tag says nothing, and passes.
func (e Edited) Check(etag string) error {
	if etag == "" {
		return nil
	}
	asked, err := base64.RawURLEncoding.DecodeString(etag)
	now := e.marks()
	switch {
	case len(etag) > maxETag || err != nil || len(asked)%etagPart != 0:
		return Invalid(FieldIfETag, "%q is no tag: one comes as etag with what is read", clip(etag))
	case slices.Equal(asked, now):
		return nil
	case len(asked) != len(now): // of another release
		return Changed("all of it may be" + byNow)
	}
	var fields []string
	for i, p := range e {
		if at := i * etagPart; !slices.Equal(asked[at:at+etagPart], now[at:at+etagPart]) {
			fields = append(fields, p.Field)
		}
	}
	if len(fields) == 1 {
		return Changed(fields[0] + " is" + byNow)
	}
	last := len(fields) - 1
	return Changed(strings.Join(fields[:last], ", ") + " and " + fields[last] + " are" + byNow)
}

// FieldIfETag is the field in which a change names the tag of what it was made from.
const FieldIfETag = "if_etag"

const byNow = " different by now: read it again, and decide anew"

// Changed refuses a change that was made from something else than what is there.
func Changed(what string) error {
	return &Error{Code: CodeConflict, Field: FieldIfETag, Message: FieldIfETag + ": " + what}
}
