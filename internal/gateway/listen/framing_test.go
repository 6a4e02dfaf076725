package listen

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
)

// A request that did not come over a connection of this package does not close one.
func TestFramingOfNoConnection(t *testing.T) {
	w := httptest.NewRecorder()
	if lastIfAmbiguous(http.NotFoundHandler()).ServeHTTP(w, httptest.NewRequest("POST", "/", nil)); w.Header().Get("Connection") != "" {
		t.Errorf("response headers = %v, want no Connection", w.Header())
	}
}

// Headers for lengths and transfer codings are counted, in any case and however they arrive, and other headers are not.
func TestFramingHeadersAreCounted(t *testing.T) {
	for raw, want := range map[string][2]int64{
		"": {}, "GET / HTTP/1.1\r\nHost: x\r\n\r\n": {}, "Content-Length: 1\r\n": {1, 0}, "content-LENGTH:1\n": {1, 0},
		"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n": {1, 1}, "Content-Length: 1\r\nContent-Length: 1\r\n": {2, 0},
		"Transfer-EncodingX: chunked\r\n": {}, "Transfer-Encoding-Too: x\r\n": {}, "Content-Length2: x\n": {}, "X: Content-Length: 1\n": {},
		"Content-Length:: 1\n": {1, 0}, "Content-Length\n: 1\n": {}, "Transfer-Encodin: x\n": {},
		"Transfer-Encoding X:\nContent-Length:": {1, 0},
	} {
		for size := 1; size < 9; size += 3 {
			f := &framing{}
			for piece := range slices.Chunk([]byte(raw), size) {
				f.read(piece)
			}
			if got := [2]int64{f.lengths.Load(), f.codings.Load()}; got != want {
				t.Errorf("%q in pieces of %d bytes: lengths and codings %v, want %v", raw, size, got, want)
			}
		}
	}
}
