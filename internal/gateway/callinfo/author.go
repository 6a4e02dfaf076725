package callinfo

import (
	"context"
	"net"
	"unicode/utf8"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/pawlq/pawl/internal/gateway/listen"
	"github.com/pawlq/pawl/internal/task"
)

// The actor and the reason of a call are in headers, so that every call of an operator can have them. A reason in the request
// itself takes precedence over the header. In gRPC it is binary metadata, since other metadata is ASCII only.
const (
	headerActor  = "Pawl-Actor"
	headerReason = "Pawl-Reason"

	metaActor  = "pawl-actor"
	metaReason = "pawl-reason-bin"
)

// maxSource bounds an address of a network without hosts.
const maxSource = 64

// Author returns the author of a call. It is called only where needed, so that calls of producers and workers don't pay for it.
// Reason is the one in the request, "" if it has none.
func Author(ctx context.Context, reason string) (by task.Author, err error) {
	header, c := "", Of(ctx)
	by.Interface, by.Address = Source(ctx, c)
	if web := c.Web; web != nil {
		if by.Name, err = OnlyOne("actor", headerActor, web.Header[headerActor]); err != nil {
			return by, err
		}
		if header, err = OnlyOne("reason", headerReason, web.Header[headerReason]); err != nil {
			return by, err
		}
	} else {
		if by.Name, err = OnlyOne("actor", metaActor, metadata.ValueFromIncomingContext(ctx, metaActor)); err != nil {
			return by, err
		}
		if header, err = OnlyOne("reason", metaReason, metadata.ValueFromIncomingContext(ctx, metaReason)); err != nil {
			return by, err
		}
	}
	if known := c.Principal.Actor(); known != "" { // the name that a caller gives itself is unverified
		by.Name = known
	}
	if by.Reason = reason; reason == "" {
		by.Reason = header
	}
	if err := task.CheckActor(by.Name); err != nil {
		return by, err
	}
	return by, checkReason(by.Reason)
}

// Source returns the interface and the address that a call came from.
func Source(ctx context.Context, c *Call) (iface task.Interface, address string) {
	if c.Web != nil {
		return c.iface, HostOf(c.Web.RemoteAddr) // REST or SQS
	}
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		address = HostOf(p.Addr.String())
		if listen.IsInProcess(p) {
			return task.InterfaceUI, address
		}
	}
	return task.InterfaceGRPC, address
}

// OnlyOne returns the value of a header that must not be repeated.
func OnlyOne(field, header string, values []string) (string, error) {
	switch len(values) {
	case 0:
		return "", nil
	case 1:
		return values[0], nil
	}
	return "", task.Invalid(field, "%s is given %d times", header, len(values))
}

// HostOf returns an address without its port, which means nothing later.
func HostOf(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return task.Cut(host, maxSource)
	}
	return task.Cut(address, maxSource)
}

// checkReason rejects a reason that does not fit on a log line.
func checkReason(reason string) error {
	if len(reason) > task.MaxReason {
		return task.Invalid("reason", "%d bytes, at most %d are allowed", len(reason), task.MaxReason)
	}
	if !utf8.ValidString(reason) {
		return task.Invalid("reason", "is not UTF-8")
	}
	return nil
}

// Address returns the host that a call comes from.
func Address(ctx context.Context) string {
	if web := Of(ctx).Web; web != nil {
		return HostOf(web.RemoteAddr)
	}
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		return HostOf(p.Addr.String())
	}
	return ""
}
