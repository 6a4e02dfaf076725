package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	signer "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/gateway/access"
	"github.com/pawlq/pawl/internal/rest"
	"github.com/pawlq/pawl/internal/sqs"
)

// allocated returns how many bytes fn allocates, which is at least what it holds at its peak.
func allocated(fn func()) int64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	fn()
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc - before.TotalAlloc)
}

// repeated is a body of a text repeated many times, which takes no memory.
type repeated struct {
	text string
	at   int
	left int
}

func (r *repeated) Read(p []byte) (n int, err error) {
	for n < len(p) && r.left > 0 {
		m := copy(p[n:min(len(p), n+r.left)], r.text[r.at:])
		n, r.left, r.at = n+m, r.left-m, (r.at+m)%len(r.text)
	}
	if r.left == 0 {
		err = io.EOF
	}
	return n, err
}

const (
	// bodySize is the size of the bodies in these tests, hostileText what they repeat: whoever decodes it makes much of little.
	bodySize    = 4 << 20
	hostileText = `[{},{},{},{},{},{},{},{},{}],`
	// refusedBytes bounds what a refused call may allocate, whatever its body. Measured: 30 KB over REST and SQS, 100 KB over gRPC, most of
	// it the client's.
	refusedBytes = 512 << 10
)

// A caller who may not make a call makes the node hold nothing of its body: over REST.
func TestRefusedBodiesTakeNoMemoryOverREST(t *testing.T) {
	k := newTokenSet()
	k.addAll()
	g := lockedGateway(t, k)
	fill := strings.NewReplacer("{id}", "00000000-0000-7000-8000-000000000001", "{queue}", "mail", "{name}", "n", "{node}", "n1", "{shard}",
		"1", "{worker}", "w")
	calls := 0
	for _, r := range rest.Routes() {
		need := access.NeedOfRoute(r)
		if need.Reach == access.Public || strings.HasSuffix(r.Path, "/events") {
			continue
		}
		for _, token := range []string{"", "produce", "consume", "observe", "operate"} {
			if token != "" && k.expected(token, need) != codes.PermissionDenied {
				continue
			}
			req := httptest.NewRequest(r.Method, "http://localhost"+fill.Replace(r.Path), &repeated{text: hostileText, left: bodySize})
			req.ContentLength = bodySize
			if token != "" {
				req.Header.Set("Authorization", "Bearer "+k.secret[token])
			}
			w := httptest.NewRecorder()
			k.auth.Refreshed(time.Now()) // these calls may take longer than tokens are trusted without contact
			n := allocated(func() { g.Handler().ServeHTTP(w, req) })
			if calls++; w.Code != http.StatusUnauthorized && w.Code != http.StatusForbidden || n > refusedBytes {
				t.Errorf("%s %s with token %q: status %d, %d bytes allocated for a body of %d", r.Method, r.Path, token,
					w.Code, n, bodySize)
			}
		}
	}
	if calls < 200 {
		t.Errorf("only %d calls were made", calls)
	}
}

// asBytes sends and receives messages as they are.
type asBytes struct{}

func (asBytes) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

func (asBytes) Unmarshal(mem.BufferSlice, any) error { return nil }

func (asBytes) Name() string { return "proto" }

// The same over gRPC, for streams too.
func TestRefusedBodiesTakeNoMemoryOverGRPC(t *testing.T) {
	k := newTokenSet()
	k.addAll()
	conn := dialGateway(t, lockedGateway(t, k))
	message := make([]byte, bodySize) // it is refused before it is decoded
	allocated(func() {
		_ = conn.Invoke(t.Context(), "/pawl.v1.AccessService/WhoAmI", &message, nil, grpc.ForceCodecV2(asBytes{}))
	}) // it connects
	calls := 0
	eachRPC(func(name string, m protoreflect.MethodDescriptor) {
		need := access.NeedOfRPC("/pawl.v1." + name)
		for _, token := range []string{"", "produce", "consume", "observe", "operate"} {
			if token != "" && k.expected(token, need) != codes.PermissionDenied {
				continue
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			k.auth.Refreshed(time.Now())
			if token != "" {
				ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+k.secret[token])
			}
			var err error
			n := allocated(func() {
				var s grpc.ClientStream
				if s, err = conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/pawl.v1."+name,
					grpc.ForceCodecV2(asBytes{})); err == nil {
					_ = s.SendMsg(&message)
					var answer []byte
					err = s.RecvMsg(&answer)
				}
			})
			cancel()
			code := status.Code(err)
			if calls++; code != codes.Unauthenticated && code != codes.PermissionDenied || n > refusedBytes {
				t.Errorf("%s with token %q: %v, %d bytes allocated for a message of %d", name, token, err, n, len(message))
			}
		}
	})
	if calls < 200 {
		t.Errorf("only %d calls were made", calls)
	}
}

// The same with the protocol of SQS: what the signature covers is read, but no more is made of it, neither before the caller is known nor
// if the body is not that of the action.
func TestRefusedBodiesTakeNoMemoryOverSQS(t *testing.T) {
	k := newTokenSet()
	k.add("eye", auth.Rights{Namespace: "team", Roles: auth.Observe})
	for i := range k.tokens {
		k.tokens[i].SQS = true
	}
	k.publish()
	g := lockedGateway(t, k)
	g.cfg.SQS = true
	g.wire()
	handler := g.withSQS(http.NotFoundHandler())
	const size = 1 << 20 // larger ones are refused for their size
	entries := func(before, of, after string) string {
		return before + strings.Repeat(of, (size-len(before)-len(after))/len(of)) + after
	}
	bodies := map[string]string{
		"application/x-amz-json-1.0":        entries(`{"QueueUrl":"http://localhost:7295/team/mail","Entries":[`, "{},", "{}]}"),
		"application/x-www-form-urlencoded": entries("QueueUrl=http://localhost:7295/team/mail", "&a=b", ""),
	}
	calls := 0
	for kind, body := range bodies {
		sum := sha256.Sum256([]byte(body))
		for _, action := range sqs.Actions() {
			for _, caller := range []string{"", "eye", "signed by eye"} {
				sent := body
				if kind == "application/x-www-form-urlencoded" {
					sent = "Action=" + action + "&" + body
					sum = sha256.Sum256([]byte(sent))
				}
				req := httptest.NewRequest("POST", "http://localhost/", strings.NewReader(sent))
				req.Header.Set("Content-Type", kind)
				if kind == "application/x-amz-json-1.0" {
					req.Header.Set("X-Amz-Target", "AmazonSQS."+action)
				}
				switch caller {
				case "eye":
					req.Header.Set("Authorization", "Bearer "+k.secret["eye"])
				case "signed by eye":
					key := auth.AccessKeyOf(auth.HashOf(k.secret["eye"]))
					if err := signer.NewSigner().SignHTTP(t.Context(), aws.Credentials{AccessKeyID: key.ID, SecretAccessKey: key.Secret},
						req, hex.EncodeToString(sum[:]), "sqs", "eu-west-1", time.Now()); err != nil {
						t.Fatal(err)
					}
				}
				w := httptest.NewRecorder()
				n := allocated(func() { handler.ServeHTTP(w, req) })
				if calls++; w.Code == http.StatusOK || n > 4*size {
					t.Errorf("%s %s, %s: status %d, %d bytes allocated for a body of %d", kind, action, caller, w.Code, n, size)
				}
			}
		}
	}
	if calls < 100 {
		t.Errorf("only %d calls were made", calls)
	}
}
