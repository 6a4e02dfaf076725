package serve

import (
	"net/http/httptest"
	"runtime"
	"testing"

	"github.com/pawlq/pawl/internal/node"
)

// Only a server with profiles enabled samples memory.
func TestProfilesAreOffByDefault(t *testing.T) {
	if runtime.MemProfileRate != 0 {
		t.Errorf("memory is sampled every %d bytes, want never", runtime.MemProfileRate)
	}
	var cfg node.Config
	if err := (&flags{}).openDebug(&cfg); err != nil || cfg.Debug != nil || cfg.Profiles != nil || runtime.MemProfileRate != 0 {
		t.Errorf("without --debug-listen: %v, listener %v, memory sampled every %d bytes", err, cfg.Debug, runtime.MemProfileRate)
	}
	if err := (&flags{debug: "127.0.0.1:0"}).openDebug(&cfg); err != nil {
		t.Fatal(err)
	}
	defer func() { runtime.MemProfileRate = 0 }()
	defer cfg.Debug.Close()
	if runtime.MemProfileRate == 0 {
		t.Error("memory is not sampled with --debug-listen")
	}
	for _, path := range []string{"/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/cmdline"} {
		w := httptest.NewRecorder()
		if cfg.Profiles.ServeHTTP(w, httptest.NewRequest("GET", path, nil)); w.Code != 200 || w.Body.Len() == 0 {
			t.Errorf("%s: status %d with %d bytes", path, w.Code, w.Body.Len())
		}
	}
}
