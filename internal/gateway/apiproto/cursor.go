package apiproto

import (
	"encoding/base64"

	"github.com/pawlq/pawl/internal/task"
)

// cursorVersion is the first byte of a cursor, which is opaque to callers: a version, the kind of list, and where to continue.
const cursorVersion = 1

// CursorKind is the kind of list that a cursor belongs to; other lists refuse it.
type CursorKind byte

// The kinds of lists.
const (
	TaskCursor      CursorKind = 't'
	QueueCursor     CursorKind = 'q'
	TypeCursor      CursorKind = 'p'
	ScheduleCursor  CursorKind = 's'
	TickCursor      CursorKind = 'h'
	AuditCursor     CursorKind = 'w'
	GroupCursor     CursorKind = 'g'
	MemberCursor    CursorKind = 'm'
	OperationCursor CursorKind = 'o'
	WorkerCursor    CursorKind = 'k'
	TokenCursor     CursorKind = 'x'
	NamespaceCursor CursorKind = 'n'
	EventCursor     CursorKind = 'e'
	WebhookCursor   CursorKind = 'y'
	MarkerCursor    CursorKind = 'd'
)

// MaxCursor bounds what is decoded. The longest is that of the archive: it has a place for each node.
const MaxCursor = 16 << 10

// EncodeCursor returns the cursor of a list that continues after a position.
func EncodeCursor(kind CursorKind, at []byte) string {
	return base64.RawURLEncoding.EncodeToString(append([]byte{cursorVersion, byte(kind)}, at...))
}

// DecodeCursor is the inverse of EncodeCursor; nil for "".
func DecodeCursor(kind CursorKind, s string) ([]byte, error) {
	if s == "" {
		return nil, nil
	}
	if len(s) > MaxCursor {
		return nil, BadCursor(s)
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil || len(b) < 3 || b[0] != cursorVersion || b[1] != byte(kind) {
		return nil, BadCursor(s)
	}
	return b[2:], nil
}

// paged is the request of a list.
type paged interface {
	GetLimit() int32
	GetCursor() string
}

// PageOf returns how many items a page may have, and the position it starts after; nil: it is the first page.
func PageOf(r paged, kind CursorKind) (n int, at []byte, err error) {
	if n, err = LimitOf(r.GetLimit()); err != nil {
		return 0, nil, err
	}
	at, err = DecodeCursor(kind, r.GetCursor())
	return n, at, err
}

// PageByID is PageOf for a list by ids.
func PageByID(r paged, kind CursorKind) (n int, behind task.ID, err error) {
	n, at, err := PageOf(r, kind)
	if err == nil && at != nil && len(at) != len(behind) {
		err = BadCursor(r.GetCursor())
	}
	copy(behind[:], at)
	return n, behind, err
}

// NextCursor returns the cursor of the page after a name; "": there is none.
func NextCursor(kind CursorKind, name string) string {
	if name == "" {
		return ""
	}
	return EncodeCursor(kind, []byte(name))
}

// BadCursor refuses a cursor.
func BadCursor(s string) error {
	return task.Invalid("cursor", "%q was not returned by this call", task.Cut(s, 64))
}
