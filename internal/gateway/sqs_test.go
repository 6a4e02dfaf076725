package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	signer "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/cockroachdb/datadriven"

	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/sqs"
	"github.com/pawlq/pawl/internal/task"
)

// Each action of the SQS door says who may do it, and nothing else stands in the table.
func TestSQSAccessTable(t *testing.T) {
	if rows, actions := slices.Sorted(maps.Keys(sqsNeeds)), sqs.Actions(); !slices.Equal(rows, actions) || len(actions) != 23 {
		t.Errorf("the table has rows for %q, the door serves %q", rows, actions)
	}
	for action, n := range sqsNeeds {
		if n.reach == 0 || n.roles == 0 {
			t.Errorf("%s is open to whoever has a token, or to nobody: %+v", action, n)
		}
		if n.lasts != (action == "ReceiveMessage") {
			t.Errorf("%s lasts: %t", action, n.lasts)
		}
	}
}

// The stories of the SQS door are in testdata/sqs. Each call says what it does, and by which token, or by whose access key it is signed.
func TestSQS(t *testing.T) {
	datadriven.Walk(t, "testdata/sqs", func(t *testing.T, path string) {
		synctest.Test(t, func(t *testing.T) {
			s := &sqsStory{restStory: restStory{t: t, f: newFake(1)}, k: newKeys()}
			s.k.cut("boss", auth.Rights{Namespace: "team", Roles: auth.Admin})
			s.k.cut("mail", auth.Rights{Namespace: "team", Roles: auth.Produce | auth.Consume, Queues: []string{"mail*"}})
			s.k.cut("eye", auth.Rights{Namespace: "team", Roles: auth.Observe})
			for i := range s.k.tokens {
				s.k.tokens[i].SQS = true
			}
			s.k.tell()
			s.f.door = s.k.door
			s.g = newGateway(s.f)
			s.g.cfg.SQS, s.g.log = true, slog.New(slog.NewTextHandler(&s.log, nil))
			s.door = s.g.withSQS(http.NotFoundHandler())
			datadriven.RunTest(t, path, s.step)
			s.g.Shutdown(context.Background())
		})
	})
}

type sqsStory struct {
	restStory
	k        *keys
	door     http.Handler
	receipts []string // of messages, in the order in which they came; $0 in a body stands for the first
	move     string   // the handle of the last move task, which is random; $move stands for it
	log      strings.Builder
}

func (s *sqsStory) step(t *testing.T, d *datadriven.TestData) string {
	switch d.Cmd {
	case "sqs":
		return s.sqs(d)
	case "quota": // requests a second; 0: none
		var q task.Quotas
		d.ScanArgs(t, "requests", &q.Requests)
		s.k.door.Replace(auth.Access{Tokens: s.k.tokens, Namespaces: []string{"team"}, Quotas: map[string]task.Quotas{"team": q}})
		return ""
	case "counted": // what the node tells of its calls and callers
		return fmt.Sprintf("%d calls, %d workers\n", s.g.calls.InUse(), len(s.f.registry.Counts()))
	}
	return s.restStory.step(t, d)
}

var (
	receiptHandle = regexp.MustCompile(`"ReceiptHandle":"([^"]+)"`)
	moveHandle    = regexp.MustCompile(`"TaskHandle":"([^"]+)"`)
)

func (s *sqsStory) sqs(d *datadriven.TestData) string {
	s.k.door.Heard(time.Now())
	body := strings.ReplaceAll(d.Input, "$move", s.move)
	for i, r := range s.receipts {
		body = strings.ReplaceAll(body, fmt.Sprintf("$%d", i), r)
	}
	r := httptest.NewRequest("POST", "http://localhost/", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/x-amz-json-1.0")
	for _, a := range d.CmdArgs {
		switch value := a.Vals[0]; a.Key {
		case "do":
			r.Header.Set("X-Amz-Target", "AmazonSQS."+value)
		case "token":
			r.Header.Set(headerToken, "Bearer "+s.k.secret[value])
		case "key", "false-key":
			key := auth.AccessKeyOf(auth.HashOf(s.k.secret[value]))
			if a.Key == "false-key" {
				key.Secret = "another"
			}
			sum := sha256.Sum256([]byte(body))
			if err := signer.NewSigner().SignHTTP(s.t.Context(), aws.Credentials{AccessKeyID: key.ID, SecretAccessKey: key.Secret}, r, hex.EncodeToString(sum[:]), "sqs", "eu-west-1", time.Now()); err != nil {
				d.Fatalf(s.t, "%v", err)
			}
		default:
			r.Header.Set(a.Key, value)
		}
	}
	w := httptest.NewRecorder()
	s.door.ServeHTTP(w, r)
	for _, m := range receiptHandle.FindAllStringSubmatch(w.Body.String(), -1) {
		s.receipts = append(s.receipts, m[1])
	}
	if m := moveHandle.FindStringSubmatch(w.Body.String()); m != nil {
		s.move = m[1]
	}
	return strings.TrimSpace(fmt.Sprintf("%d %s %s", w.Code, w.Header().Get("x-amzn-query-error"), moveHandle.ReplaceAllString(w.Body.String(), `"TaskHandle":"$$move"`))) + "\n"
}

// Where no token is wanted the door, too, answers to known hosts only.
func TestSQSKeepsToItsHosts(t *testing.T) {
	g := newGateway(newFake())
	g.cfg.SQS = true
	door := g.withSQS(http.NotFoundHandler())
	for host, want := range map[string]int{"localhost": 200, "evil.example": 0} {
		r := httptest.NewRequest("POST", "http://"+host+"/", strings.NewReader("{}"))
		r.Header.Set("Content-Type", "application/x-amz-json-1.0")
		r.Header.Set("X-Amz-Target", "AmazonSQS.ListQueues")
		w := httptest.NewRecorder()
		if door.ServeHTTP(w, r); (w.Code == 200) != (want == 200) {
			t.Errorf("%s: %d %s", host, w.Code, w.Body)
		}
	}
}
