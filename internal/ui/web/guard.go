package web

import "net/http"

// policy allows a page to load only what the binary contains, and forbids framing.
const policy = "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; connect-src 'self'; " +
	"object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"

// guard rejects requests from pages of other origins, and sets the security headers of pages.
func guard(next http.Handler) http.Handler {
	origin := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		// Not no-referrer: browsers would send "Origin: null" with forms, and over plain HTTP, where they don't send
		// Sec-Fetch-Site, nothing would distinguish our forms from those of others.
		h.Set("Referrer-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		if err := origin.Check(r); err != nil || lacksOrigin(r) {
			http.Error(w, "only pages of this server may make changes here", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// lacksOrigin reports whether a request may change something but has no browser's statement of its origin. Programs use the API.
func lacksOrigin(r *http.Request) bool {
	if r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == http.MethodOptions {
		return false
	}
	return r.Header.Get("Sec-Fetch-Site") == "" && r.Header.Get("Origin") == ""
}
