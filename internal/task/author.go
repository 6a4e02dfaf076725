package task

import (
	"log/slog"
	"strings"
)

// Author is who changed something as an operator, and why. The zero value is nobody: what the broker does of its own accord, or on
// behalf of the task at hand.
type Author struct {
	// Name is the name of the caller's token; without tokens it is what the caller claims, unverified, or "".
	Name      string
	Address   string // host of the connection, or of a proxy in between
	Interface Interface
	Reason    string
}

// Interface is how a call came in. The names are part of the public contract.
type Interface string

// The interfaces.
const (
	InterfaceREST Interface = "rest"
	InterfaceGRPC Interface = "grpc"
	InterfaceUI   Interface = "ui"
	InterfaceSQS  Interface = "sqs"
	InterfaceNode Interface = "node" // a node on its own behalf: it joins
)

const (
	// MaxActor bounds the name of an author and MaxReason the text of a reason, in bytes.
	MaxActor  = 256
	MaxReason = 1 << 10
)

// IsZero reports whether this is nobody.
func (a Author) IsZero() bool { return a == Author{} }

// LogValue implements slog.LogValuer.
func (a Author) LogValue() slog.Value {
	return slog.GroupValue(slog.String("actor", a.Name), slog.String("address", a.Address), slog.String("reason", a.Reason))
}

// CheckActor refuses an invalid name of an author: the name is sent in a header, and shown in lists and logs.
func CheckActor(name string) error {
	if len(name) > MaxActor {
		return Invalid("actor", "%q has %d bytes, at most %d are allowed", clip(name), len(name), MaxActor)
	}
	if strings.ContainsFunc(name, func(c rune) bool { return c < ' ' || c > '~' }) {
		return Invalid("actor", "%q has characters other than printable ASCII", clip(name))
	}
	return nil
}
