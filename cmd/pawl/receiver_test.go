package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/rogpeppe/go-internal/testscript"
)

// startReceiver receives webhook deliveries.
func startReceiver(ts *testscript.TestScript, _ bool, _ []string) {
	file, err := os.Create(ts.MkAbs("notices"))
	ts.Check(err)
	var mu sync.Mutex
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(file, "%s %s\n", r.Header.Get("Webhook-Id"), body)
		code, err := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/"))
		if err != nil {
			code = http.StatusNoContent
		}
		w.WriteHeader(code)
	}))
	ts.Defer(func() {
		srv.Close()
		_ = file.Close()
	})
	ts.Setenv("HOOK", srv.URL)
}
