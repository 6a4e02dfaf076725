package listen

import (
	"bytes"
	"context"
	"net/http"
	"sync/atomic"
)

const (
	lengthHeader = "Content-Length"
	codingHeader = "Transfer-Encoding"
)

// framing counts the lines of a connection that begin like the headers that determine the length of a body.
//
// net/http drops Content-Length from a request that has Transfer-Encoding too, and Transfer-Encoding from one of HTTP/1.0, before a
// handler sees it. Either means that an intermediary may see the end of the request elsewhere, so the connection must be closed
// after the answer (RFC 9112, section 6.1). A line that did not reach a handler as a header was either dropped like that, or is
// part of a body or of a later request; in the latter cases a connection is closed that could have stayed open. framing never
// decides where a request ends, so it can't disagree with net/http.
type framing struct {
	name    [len(codingHeader)]byte // the beginning of the line
	n       int                     // of its bytes
	decided bool                    // the rest of the line does not matter

	lengths, codings atomic.Int64 // that no handler has seen; the next byte may be read while a handler runs
}

// read processes bytes read from the connection.
func (f *framing) read(b []byte) {
	for len(b) > 0 {
		if f.decided {
			end := bytes.IndexByte(b, '\n')
			if end < 0 {
				return
			}
			b, f.n, f.decided = b[end+1:], 0, false
			continue
		}
		next := b[0]
		b = b[1:]
		switch {
		case next == '\n':
			f.n = 0
		case next == ':':
			f.header(f.name[:f.n])
			f.decided = true
		case f.n == len(f.name):
			f.decided = true
		default:
			f.name[f.n] = next
			f.n++
		}
	}
}

func (f *framing) header(name []byte) {
	switch {
	case bytes.EqualFold(name, []byte(lengthHeader)):
		f.lengths.Add(1)
	case bytes.EqualFold(name, []byte(codingHeader)):
		f.codings.Add(1)
	}
}

// ambiguous reports whether an intermediary may see the end of a request elsewhere. It must be called once for each request.
func (f *framing) ambiguous(r *http.Request) bool {
	chunked := len(r.TransferEncoding) > 0
	if chunked {
		f.codings.Add(-1)
	}
	if len(r.Header[lengthHeader]) > 0 {
		f.lengths.Add(-1)
	}
	return chunked && f.lengths.Load() > 0 || !r.ProtoAtLeast(1, 1) && f.codings.Load() > 0
}

// lastIfAmbiguous closes the connection of an ambiguous request after its answer.
func lastIfAmbiguous(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c := connOf(r.Context()); c != nil && c.framing.ambiguous(r) {
			w.Header()["Connection"] = []string{"close"}
		}
		next.ServeHTTP(w, r)
	})
}

// connOf returns the connection of a request; nil: it has none.
func connOf(ctx context.Context) *sniffedConn {
	c, _ := ctx.Value(connKey{}).(*sniffedConn)
	return c
}
