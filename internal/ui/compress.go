package ui

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
	"sync"
)

// leastZipped is the size from which a page is worth compressing.
const leastZipped = 1 << 10

// zippers are kept from page to page: a new one takes 800 KiB.
var zippers = sync.Pool{New: func() any {
	z, err := gzip.NewWriterLevel(nil, gzip.BestSpeed)
	if err != nil {
		panic(err) // the level is good
	}
	return z
}}

// zip is a page as it travels: a tenth of its size, for half a millisecond.
func zip(page []byte) []byte {
	var b bytes.Buffer
	z := zippers.Get().(*gzip.Writer)
	defer zippers.Put(z)
	z.Reset(&b)
	_, _ = z.Write(page) // into memory
	_ = z.Close()
	return b.Bytes()
}

// mayZip tells whether the answer may be compressed. The length of a compressed page tells something of what is in it, to somebody who can
// both have a browser ask for pages with words of their own and watch how long the answers are over TLS (BREACH). So what pages of other
// sites ask for goes as it is; they get no session along either, as its cookie is strict. Our pages hold no token against forged
// requests that could be found out so: origins are compared (guard.go). New secrets are shown by pages that don't come here.
func mayZip(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	return takesZipped(r) && (site == "" || site == "same-origin" || site == "none")
}

// takesZipped tells whether who asks can read gzip.
func takesZipped(r *http.Request) bool {
	for _, coding := range strings.Split(strings.Join(r.Header.Values("Accept-Encoding"), ","), ",") {
		name, quality, _ := strings.Cut(coding, ";")
		if strings.TrimSpace(name) == "gzip" {
			return strings.Trim(strings.TrimPrefix(strings.TrimSpace(quality), "q="), "0.") != "" || quality == ""
		}
	}
	return false
}

// tagOf names what a page shows: a refresh that would bring the same is answered by the tag alone. How long ago something was does not
// count: a script keeps those words right.
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
