package wire

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"maps"

	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	signer "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

const secret = "0123456789abcdefghijklmnopqrstuvwxyzABCDE/+"

var now = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

// signed returns a request signed by the AWS SDK, as a server receives it.
func signed(t testing.TB, method, target, body string, presign bool, headers ...string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, target, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	sum := sha256.Sum256([]byte(body))
	digest := hex.EncodeToString(sum[:])
	key := aws.Credentials{AccessKeyID: "PAWLKEY", SecretAccessKey: secret}
	if presign {
		q := r.URL.Query()
		if !q.Has("X-Amz-Expires") {
			q.Set("X-Amz-Expires", "3600")
		}
		r.URL.RawQuery = q.Encode()
		uri, send, err := signer.NewSigner().PresignHTTP(t.Context(), key, r, digest, "sqs", "eu-west-1", now)
		if err != nil {
			t.Fatal(err)
		}
		got := httptest.NewRequestWithContext(t.Context(), method, uri, strings.NewReader(body))
		for name, values := range send {
			got.Header[http.CanonicalHeaderKey(name)] = values
		}
		return got
	}
	if err := signer.NewSigner().SignHTTP(t.Context(), key, r, digest, "sqs", "eu-west-1", now); err != nil {
		t.Fatal(err)
	}
	var sent bytes.Buffer
	if err := r.Write(&sent); err != nil {
		t.Fatal(err)
	}
	return received(t, sent.String())
}

func received(t testing.TB, sent string) *http.Request {
	t.Helper()
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(sent)))
	if err != nil {
		t.Fatalf("%q: %v", sent, err)
	}
	return r
}

func verify(r *http.Request, body, secret string, at time.Time) error {
	s, err := ParseSignature(r)
	if err != nil {
		return err
	}
	return s.Verify(r, []byte(body), secret, at, "X-Amz-Target")
}

func TestSignaturesOfSDK(t *testing.T) {
	for _, c := range []struct {
		name, method, target, body string
		headers                    []string
	}{
		{"JSON", "POST", "http://localhost:7295/", `{"QueueUrl":"q"}`, []string{"X-Amz-Target", "AmazonSQS.SendMessage", "Content-Type",
			"application/x-amz-json-1.0"}},
		{"form", "POST", "http://localhost/000000000000/q.fifo", "Action=SendMessage&MessageBody=a+b", []string{"Content-Type",
			"application/x-www-form-urlencoded"}},
		{"query", "GET", "http://h/000000000000/q?Action=ReceiveMessage&b=2&a=%2F+%20~ü&a=1&AttributeName.1=All&AttributeName.10=x&empty=",
			"", nil},
		{"path", "GET", "http://h/a%20b/%C3%BC?x=y", "", nil},
		{"values", "POST", "http://h/", "x", []string{"X-Amz-Meta", "  a   b  ", "X-Amz-Meta", "c"}},
	} {
		for _, presign := range []bool{false, true} {
			r := signed(t, c.method, c.target, c.body, presign, c.headers...)
			if !IsSigned(r) {
				t.Errorf("%s (presigned: %t): IsSigned = false", c.name, presign)
			}
			if err := verify(r, c.body, secret, now); err != nil {
				t.Errorf("%s (presigned: %t): %v", c.name, presign, err)
			}
			for what, err := range map[string]error{"another secret": verify(r, c.body, secret+"x", now), "another body": verify(r,
				c.body+"x", secret, now)} {
				if e, ok := errors.AsType[*SignatureError](err); !ok || e.Code != "SignatureDoesNotMatch" {
					t.Errorf("%s (presigned: %t) with %s: %v, want SignatureDoesNotMatch", c.name, presign, what, err)
				}
			}
		}
	}
}

// Any change of a request makes its signature invalid.
func TestChangedRequests(t *testing.T) {
	const body = "Action=SendMessage"
	for name, change := range map[string]func(r *http.Request){
		"method":     func(r *http.Request) { r.Method = "PUT" },
		"path":       func(r *http.Request) { r.URL.Path += "x" },
		"query":      func(r *http.Request) { r.URL.RawQuery += "&Action=DeleteQueue" },
		"host":       func(r *http.Request) { r.Host = "elsewhere" },
		"length":     func(r *http.Request) { r.ContentLength++ },
		"date":       func(r *http.Request) { r.Header.Set(headerDate, "20260304T050608Z") },
		"signed":     func(r *http.Request) { r.Header.Set("X-Amz-Target", "AmazonSQS.DeleteQueue") },
		"added":      func(r *http.Request) { r.Header.Add("X-Amz-Target", "AmazonSQS.DeleteQueue") },
		"service":    func(r *http.Request) { replace(r, "/sqs/", "/s3/") },
		"scope":      func(r *http.Request) { replace(r, "eu-west-1", "us-east-1") },
		"signature":  func(r *http.Request) { replace(r, "Signature=", "Signature=0") },
		"no header":  func(r *http.Request) { replace(r, "content-length;", "") },
		"body's sum": func(r *http.Request) { r.Header.Set(headerBody, strings.Repeat("0", 64)) },
	} {
		r := signed(t, "POST", "http://localhost/000000000000/q?a=b", body, false, "X-Amz-Target", "AmazonSQS.SendMessage")
		change(r)
		if err := verify(r, body, secret, now); err == nil {
			t.Errorf("a request with another %s was accepted", name)
		}
	}
	r := signed(t, "POST", "http://localhost/", body, false)
	r.Header.Set("X-Amz-Target", "AmazonSQS.DeleteQueue")
	if err := verify(r, body, secret, now); err == nil {
		t.Error("a request with a target that is not signed was accepted")
	}
}

func replace(r *http.Request, old, with string) {
	r.Header.Set("Authorization", strings.Replace(r.Header.Get("Authorization"), old, with, 1))
}

// A signature in the header is valid for as long as clocks may differ, a presigned URL for as long as it says, even if that is less.
func TestTimesOfSignatures(t *testing.T) {
	for _, c := range []struct {
		presign string // expires after so many seconds; "": signed in the header
		off     time.Duration
		says    string // "": it is accepted
	}{
		{"", 0, ""}, {"", ClockSkew, ""},
		{"", ClockSkew + time.Second, "Signature expired: 20260304T050607Z is now earlier than 20260304T050608Z."},
		{"", -ClockSkew, ""}, {"", -ClockSkew - time.Second,
			"Signature not yet current: 20260304T050607Z is still later than 20260304T050606Z " +
				"(20260304T045106Z + 15 min.)"},
		{"3600", time.Hour, ""}, {"3600", time.Hour + time.Second,
			"Signature expired: 20260304T050607Z is now earlier than 20260304T050608Z."},
		{"3600", -ClockSkew, ""}, {"3600", -ClockSkew - time.Second, "Signature not yet current"}, {"60", time.Minute, ""},
		{"60", time.Minute + time.Second, "Signature expired"}, {"604800", 7 * 24 * time.Hour, ""},
	} {
		target := "http://h/000000000000/q?Action=GetQueueUrl"
		if c.presign != "" {
			target += "&X-Amz-Expires=" + c.presign
		}
		r := signed(t, "GET", target, "", c.presign != "")
		if err := verify(r, "", secret, now.Add(c.off)); (err == nil) != (c.says == "") || err != nil &&
			!strings.HasPrefix(err.Error(), c.says) {
			t.Errorf("presigned for %q seconds, verified %v after signing: %v, want %q", c.presign, c.off, err, c.says)
		}
	}
}

// The header with the hash of the body may have the hash, or say that the body is not signed.
func TestHashOfTheBody(t *testing.T) {
	sum := sha256.Sum256([]byte("body"))
	for header, good := range map[string][2]bool{hex.EncodeToString(sum[:]): {true, false}, strings.ToUpper(hex.EncodeToString(sum[:])): {},
		"x": {}} {
		r := signed(t, "POST", "http://localhost/", "body", false, headerBody, header)
		for i, body := range []string{"body", "other"} {
			if err := verify(r, body, secret, now); (err == nil) != good[i] {
				t.Errorf("%s: %s, with the body %s: %v", headerBody, header, body, err)
			}
		}
	}
}

// A request without a path is signed as one for the root, and bad escapes in a query don't match anything.
func TestOddURLs(t *testing.T) {
	r := signed(t, "GET", "http://h/?b=1&a=2&a=1&a-=3&a%3D=4", "", false)
	r.URL.Path = ""
	if err := verify(r, "", secret, now); err != nil {
		t.Errorf("without a path: %v", err)
	}
	if got := canonicalQuery("b=1&a=2&a=1&a-=3&a%3D=4&&c&0=9"); got != "0=9&a=1&a=2&a%3D=4&a-=3&b=1&c=" {
		t.Errorf("the canonical query is %s", got)
	}
	r.URL.RawQuery = "b=%zz"
	if err := verify(r, "", secret, now); err == nil {
		t.Error("a request with a bad escape was accepted")
	}
	r = httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
	r.URL.RawQuery = "X-Amz-Algorithm=" + algorithm + "&x=%zz"
	if _, err := ParseSignature(r); err == nil || !strings.Contains(err.Error(), "can not be read") {
		t.Errorf("Parse of a bad query: %v", err)
	}
}

func TestIncompleteSignatures(t *testing.T) {
	for name, change := range map[string]func(r *http.Request){
		"credential":  func(r *http.Request) { replace(r, "Credential=", "Cred=") },
		"short scope": func(r *http.Request) { replace(r, "/aws4_request", "") },
		"terminator":  func(r *http.Request) { replace(r, "aws4_request", "aws5_request") },
		"day":         func(r *http.Request) { replace(r, "20260304/", "20260303/") },
		"headers":     func(r *http.Request) { replace(r, "SignedHeaders=", "Headers=") },
		"host":        func(r *http.Request) { replace(r, "host;", "") },
		"signature":   func(r *http.Request) { replace(r, "Signature=", "Sig=") },
		"no date":     func(r *http.Request) { r.Header.Del(headerDate) },
		"date":        func(r *http.Request) { r.Header.Set(headerDate, "today") },
		"session":     func(r *http.Request) { r.Header.Set("X-Amz-Security-Token", "x") },
		"long":        func(r *http.Request) { r.Header.Set("Authorization", algorithm+strings.Repeat("x", maxSignatureField)) },
	} {
		r := signed(t, "POST", "http://localhost/", "{}", false)
		change(r)
		if _, err := ParseSignature(r); err == nil {
			t.Errorf("Parse accepted a signature with another %s", name)
		}
	}
	whole := url.Values{"X-Amz-Algorithm": {algorithm}, "X-Amz-Credential": {"K/20260304/eu-west-1/sqs/aws4_request"},
		headerDate: {"20260304T050607Z"}, "X-Amz-Expires": {"604800"}, "X-Amz-SignedHeaders": {"host"}, "X-Amz-Signature": {"00"}}
	for _, c := range []struct {
		name, value string
		good        bool
	}{
		{"Action", "ListQueues", true}, {"X-Amz-Expires", "x", false}, {"X-Amz-SignedHeaders", "host" + strings.Repeat(";a", maxHeaders-1),
			true},
		{"X-Amz-SignedHeaders", "host" + strings.Repeat(";a", maxHeaders), false}, {"X-Amz-Credential", "K/20260304/" + strings.Repeat("e",
			maxSignatureField-len("K/20260304//sqs/aws4_request")) + "/sqs/aws4_request", true},
		{"X-Amz-Credential",
			"K/20260304/" + strings.Repeat("e", maxSignatureField-len("K/20260304//sqs/aws4_request")+1) + "/sqs/aws4_request", false},
		{"X-Amz-Algorithm", "x", false}, {"X-Amz-Expires", "", false}, {"X-Amz-Expires", "0", false}, {"X-Amz-Expires", "1", true},
		{"X-Amz-Expires", "604801", false}, {"X-Amz-Security-Token", "x", false}, {"X-Amz-Credential", "", false}, {headerDate, "", false},
		{"X-Amz-SignedHeaders", "", false},
	} {
		q := maps.Clone(whole)
		q.Set(c.name, c.value)
		r := httptest.NewRequestWithContext(t.Context(), "GET", "/?"+q.Encode(), nil)
		if _, err := ParseSignature(r); (err == nil) != c.good {
			t.Errorf("Parse of a query with %s=%q: %v", c.name, c.value, err)
		}
	}
}

// FuzzParse checks that any request is refused or parsed, and never verified with this secret.
func FuzzParse(f *testing.F) {
	f.Add("AWS4-HMAC-SHA256 Credential=K/20260304/us-east-1/sqs/aws4_request, SignedHeaders=host;x-amz-date, Signature=00",
		"20260304T050607Z", "a=b")
	f.Add("", "", "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=K/20260304/us-east-1/sqs/aws4_request&X-Amz-Date=20260304T050607Z&"+
		"X-Amz-Expires=60&X-Amz-SignedHeaders=host&X-Amz-Signature=0")
	f.Fuzz(func(t *testing.T, authorization, date, query string) {
		r := httptest.NewRequestWithContext(t.Context(), "POST", "/", http.NoBody)
		r.URL.RawQuery = query
		r.Header["Authorization"], r.Header[headerDate] = []string{authorization}, []string{date}
		s, err := ParseSignature(r)
		if err == nil {
			err = s.Verify(r, nil, secret, now)
		}
		if err == nil {
			t.Errorf("%q %q %q was verified", authorization, date, query)
		}
	})
}
