package verb

import (
	"errors"

	"github.com/fxamacker/cbor/v2"
)

// Calls travel as CBOR maps keyed by the names of Go fields. Fields that one side does not know are omitted or ignored, so that nodes of
// two versions understand each other. The transport bounds the bytes of a message; these bounds apply to what is decoded from them.
const (
	// maxElements bounds the items of a list or map: far more than a batch or a page has.
	maxElements = 1 << 20
	// maxNesting bounds how deep lists and maps may nest: a task with its attempts takes 6 levels, one with all possible follow-ups 46.
	maxNesting = 64
)

var (
	encoding = must(cbor.EncOptions{Time: cbor.TimeRFC3339Nano}.EncMode())
	decoding = must(cbor.DecOptions{MaxArrayElements: maxElements, MaxMapPairs: maxElements, MaxNestedLevels: maxNesting,
		// Error texts are truncated by bytes, perhaps within a character, and workers send arbitrary ones.
		UTF8: cbor.UTF8DecodeInvalid}.DecMode())
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err) // the options are constants
	}
	return v
}

// packer has fields without a form on the wire: Pack encodes them into fields that have one, Unpack restores them.
type packer interface {
	Pack()
	Unpack()
}

// Encode encodes what v points to, for another node.
func Encode(v any) ([]byte, error) {
	if p, ok := v.(packer); ok {
		p.Pack()
	}
	return encoding.Marshal(v)
}

// Decode decodes what Encode wrote into what v points to.
func Decode(b []byte, v any) error {
	if err := decoding.Unmarshal(b, v); err != nil {
		return err
	}
	if p, ok := v.(packer); ok {
		p.Unpack()
	}
	return nil
}

// reply is the answer to a call. A call of many rounds may have a result besides its error.
type reply[R any] struct {
	Out   *R
	Fault cbor.RawMessage // null: none
}

func (a *reply[R]) Pack() {
	if p, ok := any(a.Out).(packer); ok && a.Out != nil {
		p.Pack()
	}
}

func (a *reply[R]) Unpack() {
	if p, ok := any(a.Out).(packer); ok && a.Out != nil {
		p.Unpack()
	}
}

// Codec encodes and decodes a call's request and its answer. An error travels next to the answer, in a form opaque to the carrier; it is
// null if there is none.
type Codec interface {
	EncodeRequest() ([]byte, error)
	DecodeRequest(b []byte) error
	EncodeReply(fault []byte) ([]byte, error)
	DecodeReply(b []byte) (fault []byte, err error)
}

var errNoReply = errors.New("it has neither an answer nor an error")
