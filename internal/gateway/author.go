package gateway

import (
	"context"
	"net"
	"unicode/utf8"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/pawlq/pawl/internal/task"
)

// Who acts, and why, comes in headers, so that every call of an operator can say it. A reason in the request itself goes before
// that of the header. In gRPC it is binary metadata, since others hold ASCII only.
const (
	headerActor  = "Pawl-Actor"
	headerReason = "Pawl-Reason"

	metaActor  = "pawl-actor"
	metaReason = "pawl-reason-bin"
)

// maxSource bounds an address in the words of a network that has no hosts.
const maxSource = 64

// authorOf tells who makes a call. It is read where it is wanted, so that calls of producers and workers don't pay for it.
// Reason is that of the request, "" if it gives none.
func authorOf(ctx context.Context, reason string) (by task.Author, err error) {
	said, c := "", callOf(ctx)
	by.Face, by.Address = sourceOf(ctx, c)
	if web := c.web; web != nil {
		if by.Name, err = onlyOne("actor", headerActor, web.Header[headerActor]); err != nil {
			return by, err
		}
		if said, err = onlyOne("reason", headerReason, web.Header[headerReason]); err != nil {
			return by, err
		}
	} else {
		if by.Name, err = onlyOne("actor", metaActor, metadata.ValueFromIncomingContext(ctx, metaActor)); err != nil {
			return by, err
		}
		if said, err = onlyOne("reason", metaReason, metadata.ValueFromIncomingContext(ctx, metaReason)); err != nil {
			return by, err
		}
	}
	if known := c.visitor.Actor(); known != "" { // what the caller says of itself is only said
		by.Name = known
	}
	if by.Reason = reason; reason == "" {
		by.Reason = said
	}
	if err := task.CheckActor(by.Name); err != nil {
		return by, err
	}
	return by, checkReason(by.Reason)
}

// sourceOf tells by which way and from where a call came.
func sourceOf(ctx context.Context, c *call) (face task.Face, address string) {
	if c.web != nil {
		return task.FaceREST, hostOf(c.web.RemoteAddr)
	}
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		address = hostOf(p.Addr.String())
		if isInside(p) {
			return task.FaceUI, address
		}
	}
	return task.FaceGRPC, address
}

// onlyOne is the value of a header that may be given once.
func onlyOne(field, header string, values []string) (string, error) {
	switch len(values) {
	case 0:
		return "", nil
	case 1:
		return values[0], nil
	}
	return "", task.Invalid(field, "%s is given %d times", header, len(values))
}

// hostOf is an address without its port, which tells nothing later.
func hostOf(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return task.Cut(host, maxSource)
	}
	return task.Cut(address, maxSource)
}

// checkReason refuses what would not fit a line of a log.
func checkReason(reason string) error {
	if len(reason) > task.MaxReason {
		return task.Invalid("reason", "%d bytes, at most %d are allowed", len(reason), task.MaxReason)
	}
	if !utf8.ValidString(reason) {
		return task.Invalid("reason", "is not UTF-8")
	}
	return nil
}
