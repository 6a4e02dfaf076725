package web

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"sync"
)

// leastZipped is the minimum size for compressing a page.
const leastZipped = 1 << 10

// zippers are reused: a new one allocates 800 KiB.
var zippers = sync.Pool{New: func() any {
	z, err := gzip.NewWriterLevel(nil, gzip.BestSpeed)
	if err != nil {
		panic(err) // the level is valid
	}
	return z
}}

// zip compresses a page to about a tenth of its size, in about half a millisecond.
func zip(page []byte) []byte {
	var b bytes.Buffer
	z := zippers.Get().(*gzip.Writer)
	defer zippers.Put(z)
	z.Reset(&b)
	_, _ = z.Write(page) // into memory: never fails
	_ = z.Close()
	return b.Bytes()
}

// mayZip reports whether the response may be compressed. The length of a compressed page leaks something about its
// content to an attacker who can make a browser request pages with chosen words and can observe the size of responses
// over TLS (BREACH). So pages requested by other sites are not compressed; such requests carry no session either,
// because its cookie is SameSite=Strict. Our pages contain no anti-forgery token to leak, as origins are compared
// instead (guard.go). Pages that show new secrets don't come through here.
func mayZip(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	return AcceptsGzip(r) && (site == "" || site == "same-origin" || site == "none")
}

// tagOf returns the ETag of a page: a refresh that would bring the same page is answered by the tag alone. Relative
// times are not part of it, since a script keeps them up to date.
func tagOf(page []byte) string {
	sum := sha256.New()
	for found := true; found; {
		var shown, at []byte
		shown, at, found = bytes.Cut(page, []byte("<time "))
		words := bytes.IndexByte(at, '>') + 1
		sum.Write(shown)
		sum.Write(at[:words])
		_, page, _ = bytes.Cut(at[words:], []byte("</time>"))
	}
	return `W/"` + hex.EncodeToString(sum.Sum(nil)[:12]) + `"`
}
