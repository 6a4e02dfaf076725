package wire

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	algorithm    = "AWS4-HMAC-SHA256"
	terminator   = "aws4_request"
	timeForm     = "20060102T150405Z"
	unsignedBody = "UNSIGNED-PAYLOAD"

	headerDate = "X-Amz-Date"
	headerBody = "X-Amz-Content-Sha256"
	hostHeader = "host"
)

// Limits on what is read of a request before its caller is known.
const (
	maxHeaders        = 64 // signed ones
	maxSignatureField = 4096
)

const (
	// ClockSkew is how far the clocks of client and server may differ. A presigned URL ends when it says, by the
	// server's clock, as with AWS.
	ClockSkew = 15 * time.Minute
	// MaxExpires is the longest lifetime of a presigned URL.
	MaxExpires = 7 * 24 * time.Hour
)

// SignatureError says why a signature is not accepted, in AWS's words.
type SignatureError struct {
	Code    string // IncompleteSignature, InvalidClientTokenId or SignatureDoesNotMatch
	Message string
}

func (e *SignatureError) Error() string { return e.Message }

func incomplete(format string, args ...any) error {
	return &SignatureError{"IncompleteSignature", fmt.Sprintf(format, args...)}
}

func mismatch(format string, args ...any) error {
	return &SignatureError{"SignatureDoesNotMatch", fmt.Sprintf(format, args...)}
}

// Signature is the signature of a request as the request states it, not yet verified.
type Signature struct {
	AccessKey string

	at        time.Time
	scope     string        // date/region/service/aws4_request
	headers   []string      // the signed ones, lower case, in order
	expires   time.Duration // of a presigned URL; 0: it is not one
	signature string
}

// IsSigned reports whether a request carries a signature, valid or not.
func IsSigned(r *http.Request) bool {
	return strings.HasPrefix(r.Header.Get("Authorization"), algorithm) || strings.Contains(r.URL.RawQuery, "X-Amz-Algorithm=")
}

// ParseSignature parses the signature of a request, from the Authorization header or from the query of a presigned URL. It does not touch
// the body. Any region and service are accepted: some clients derive the service from the host, and access keys are for this
// service only.
func ParseSignature(r *http.Request) (*Signature, error) {
	if strings.HasPrefix(r.Header.Get("Authorization"), algorithm) {
		return parseHeader(r)
	}
	return parseQuery(r)
}

func parseHeader(r *http.Request) (*Signature, error) {
	header := r.Header.Get("Authorization")
	if len(header) > maxSignatureField {
		return nil, incomplete("Authorization header has %d bytes: at most %d are read.", len(header), maxSignatureField)
	}
	fields := map[string]string{}
	for part := range strings.SplitSeq(strings.TrimPrefix(header, algorithm), ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		fields[name] = value
	}
	for _, name := range []string{"Credential", "SignedHeaders", "Signature"} {
		if fields[name] == "" {
			return nil, incomplete("Authorization header requires '%s' parameter.", name)
		}
	}
	date := r.Header.Get(headerDate)
	if date == "" {
		return nil, incomplete("Authorization header requires existence of a '%s' header.", headerDate)
	}
	if r.Header.Get("X-Amz-Security-Token") != "" {
		return nil, errSession
	}
	return signatureOf(fields["Credential"], date, fields["SignedHeaders"], fields["Signature"])
}

var errSession = &SignatureError{"InvalidClientTokenId",
	"The security token included in the request is invalid: temporary credentials are " +
		"not supported."}

func parseQuery(r *http.Request) (*Signature, error) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, incomplete("The query string can not be read.")
	}
	if q.Get("X-Amz-Algorithm") != algorithm {
		return nil, incomplete("X-Amz-Algorithm must be %s.", algorithm)
	}
	if q.Get("X-Amz-Security-Token") != "" {
		return nil, errSession
	}
	seconds, err := strconv.Atoi(q.Get("X-Amz-Expires"))
	if err != nil || seconds < 1 || time.Duration(seconds)*time.Second > MaxExpires {
		return nil, incomplete("X-Amz-Expires must be between 1 and %d seconds.", int(MaxExpires/time.Second))
	}
	s, err := signatureOf(q.Get("X-Amz-Credential"), q.Get(headerDate), q.Get("X-Amz-SignedHeaders"), q.Get("X-Amz-Signature"))
	if err == nil {
		s.expires = time.Duration(seconds) * time.Second
	}
	return s, err
}

func signatureOf(credential, date, headers, signature string) (*Signature, error) {
	at, err := time.Parse(timeForm, date)
	if err != nil {
		return nil, incomplete("Date must be in ISO-8601 'basic format'. Got '%.40s'.", date)
	}
	key, scope, _ := strings.Cut(credential, "/")
	parts := strings.Split(scope, "/")
	if len(credential) > maxSignatureField || len(parts) != 4 {
		return nil, incomplete("Credential must have exactly 5 slash-delimited elements, e.g. keyid/date/region/service/term.")
	}
	switch {
	case parts[0] != date[:8]:
		return nil, mismatch("Date in Credential scope does not match YYYYMMDD from ISO-8601 version of date from HTTP: '%.20s' != '%s'.",
			parts[0], date[:8])
	case parts[3] != terminator:
		return nil, mismatch("Credential should be scoped with a valid terminator: '%s'.", terminator)
	}
	signed := strings.Split(strings.ToLower(headers), ";")
	if len(signed) > maxHeaders || !slices.Contains(signed, hostHeader) {
		return nil, mismatch("'Host' must be a 'SignedHeader' in the AWS Authorization, and there are at most %d of them.", maxHeaders)
	}
	return &Signature{AccessKey: key, at: at, scope: scope, headers: signed, signature: signature}, nil
}

// Verify checks the signature of a request with this body by the secret of its access key, and its time. Must names headers that
// change what the request does: the request is refused if it has one of them unsigned.
func (s *Signature) Verify(r *http.Request, body []byte, secret string, now time.Time, must ...string) error {
	if err := s.checkTime(now); err != nil {
		return err
	}
	for _, name := range must {
		if r.Header.Get(name) != "" && !slices.Contains(s.headers, strings.ToLower(name)) {
			return mismatch("'%s' must be a 'SignedHeader' in the AWS Authorization.", name)
		}
	}
	sum := sha256.Sum256(body)
	digest := hex.EncodeToString(sum[:])
	switch header := r.Header.Get(headerBody); header {
	case "", digest:
	case unsignedBody:
		digest = unsignedBody
	default:
		return mismatch("The value of the header %s is not the hash of the body.", headerBody)
	}
	request := sha256.Sum256([]byte(s.canonical(r, digest)))
	text := algorithm + "\n" + s.at.Format(timeForm) + "\n" + s.scope + "\n" + hex.EncodeToString(request[:])
	key := []byte("AWS4" + secret)
	for part := range strings.SplitSeq(s.scope, "/") {
		key = mac(key, part)
	}
	if want := hex.EncodeToString(mac(key, text)); !hmac.Equal([]byte(want), []byte(s.signature)) {
		return mismatch("The request signature we calculated does not match the signature you provided. Check your AWS Secret " +
			"Access Key and signing method. Consult the service documentation for details.")
	}
	return nil
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	_, _ = h.Write([]byte(text))
	return h.Sum(nil)
}

func (s *Signature) checkTime(now time.Time) error {
	lasts := cmp.Or(s.expires, ClockSkew)
	switch {
	case now.After(s.at.Add(lasts)):
		return mismatch("Signature expired: %s is now earlier than %s.", s.at.Format(timeForm), now.UTC().Add(-lasts).Format(timeForm))
	case now.Before(s.at.Add(-ClockSkew)):
		return mismatch("Signature not yet current: %s is still later than %s (%s + 15 min.)", s.at.Format(timeForm),
			now.UTC().Add(ClockSkew).Format(timeForm), now.UTC().Format(timeForm))
	}
	return nil
}

// canonical returns the canonical request.
func (s *Signature) canonical(r *http.Request, digest string) string {
	var b strings.Builder
	b.WriteString(r.Method + "\n" + canonicalPath(r.URL.EscapedPath()) + "\n" + canonicalQuery(r.URL.RawQuery) + "\n")
	for _, name := range s.headers {
		b.WriteString(name + ":" + headerValue(r, name) + "\n")
	}
	b.WriteString("\n" + strings.Join(s.headers, ";") + "\n" + digest)
	return b.String()
}

// canonicalPath encodes the path a second time, as every service but S3 does.
func canonicalPath(path string) string {
	if path == "" {
		return "/"
	}
	parts := strings.Split(path, "/")
	for i := range parts {
		parts[i] = escape(parts[i])
	}
	return strings.Join(parts, "/")
}

// canonicalQuery sorts the parameters of a query, without the signature itself.
func canonicalQuery(raw string) string {
	var all []string
	for part := range strings.SplitSeq(raw, "&") {
		name, value, _ := strings.Cut(part, "=")
		if part == "" || name == "X-Amz-Signature" {
			continue
		}
		all = append(all, escape(unescape(name))+"="+escape(unescape(value)))
	}
	// By name, then by value: "=" must not be compared with a character that continues a longer name.
	slices.SortFunc(all, func(a, b string) int {
		an, av, _ := strings.Cut(a, "=")
		bn, bv, _ := strings.Cut(b, "=")
		if an != bn {
			return strings.Compare(an, bn)
		}
		return strings.Compare(av, bv)
	})
	return strings.Join(all, "&")
}

func unescape(s string) string {
	if out, err := url.QueryUnescape(s); err == nil {
		return out
	}
	return s // so that the signature does not match
}

// escape percent-encodes all but the unreserved characters of RFC 3986.
func escape(s string) string {
	const hexDigits = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		if 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-_.~", c) >= 0 {
			b.WriteByte(c)
		} else {
			b.WriteByte('%')
			b.WriteByte(hexDigits[c>>4])
			b.WriteByte(hexDigits[c&15])
		}
	}
	return b.String()
}

// headerValue returns a header's value as it is signed. net/http keeps some headers outside the header map.
func headerValue(r *http.Request, name string) string {
	switch name {
	case hostHeader:
		return r.Host
	case "content-length":
		return strconv.FormatInt(r.ContentLength, 10)
	case "transfer-encoding":
		return strings.Join(r.TransferEncoding, ",")
	}
	values := slices.Clone(r.Header.Values(name))
	for i := range values {
		values[i] = strings.Join(strings.Fields(values[i]), " ")
	}
	return strings.Join(values, ",")
}
