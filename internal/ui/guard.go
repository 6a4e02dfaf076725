package ui

import (
	"net/http"
)

// policy lets a page load what the binary holds, and nothing else; nobody may frame it.
const policy = "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; connect-src 'self'; " +
	"object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"

// guard refuses what pages of other origins send, and says to browsers what pages may do.
func guard(next http.Handler) http.Handler {
	origin := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		// Not no-referrer: with it browsers send "Origin: null" along with forms, and then nothing tells ours from those of others
		// where they don't send Sec-Fetch-Site, over plain HTTP.
		h.Set("Referrer-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		if err := origin.Check(r); err != nil || unsigned(r) {
			http.Error(w, "only pages of this server may make changes here", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// unsigned tells of a request that may change something, and of which no browser has said where it comes from. Programs use the API.
func unsigned(r *http.Request) bool {
	if r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == http.MethodOptions {
		return false
	}
	return r.Header.Get("Sec-Fetch-Site") == "" && r.Header.Get("Origin") == ""
}
