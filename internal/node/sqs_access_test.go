package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/smithy-go"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/auth/bearer"
)

// aws returns a client of the AWS SDK that signs with the access key of a token.
func (s *server) aws(id, secret string) *sqs.Client {
	tr := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return s.pipe.DialContext(ctx)
	}}
	s.t.Cleanup(tr.CloseIdleConnections)
	return sqs.New(sqs.Options{Region: "eu-west-1", BaseEndpoint: aws.String("http://localhost"), HTTPClient: &http.Client{Transport: tr},
		Credentials: credentials.NewStaticCredentialsProvider(id, secret, ""), RetryMaxAttempts: 1})
}

// wantCode fails the test unless a call is refused with the code.
func wantCode(t *testing.T, err error, code string) {
	t.Helper()
	if e, ok := errors.AsType[smithy.APIError](err); !ok || e.ErrorCode() != code {
		t.Errorf("got %v, want %s", err, code)
	}
}

// inAccess runs a story on a node that requires tokens, with the admin's own client.
func inAccess(t *testing.T, story func(t *testing.T, s *server, a admin.Client)) {
	synctest.Test(t, func(t *testing.T) {
		operator := bearer.New()
		s := start(t, Config{InMemory: true, SQS: true, Tokens: TokensAlways, AdminToken: func() string { return operator }})
		story(t, s, admin.New(s.as(operator, "")))
	})
}

func TestSQSAccessKeys(t *testing.T) {
	inAccess(t, func(t *testing.T, s *server, a admin.Client) {
		ctx := t.Context()
		make := func(spec admin.TokenSpec) *admin.NewToken {
			t.Helper()
			made, err := a.Access().CreateToken(ctx, spec)
			if err != nil {
				t.Fatal(err)
			}
			return made
		}
		all := make(admin.TokenSpec{Name: "all", Queues: []string{"*"}, Roles: []admin.Role{admin.RoleAdmin}, SQS: true})
		if len(all.AccessKeyID) != 20 || len(all.SecretAccessKey) < 40 || strings.Contains(all.Secret, all.SecretAccessKey) {
			t.Fatalf("the access key is %q, %q", all.AccessKeyID, all.SecretAccessKey)
		}
		c := s.aws(all.AccessKeyID, all.SecretAccessKey)
		made, err := c.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: aws.String("mail")})
		if err != nil || *made.QueueUrl != "http://localhost/000000000000/mail" {
			t.Fatalf("create: %v, %v", made, err)
		}
		big := strings.Repeat("ü", 200_000) // large enough for its memory to be counted
		if _, err := c.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: made.QueueUrl, MessageBody: &big}); err != nil {
			t.Fatal(err)
		}
		if got, err := a.Access().GetToken(ctx, admin.TokenName{Name: "all"}); err != nil || got.AccessKeyID != all.AccessKeyID {
			t.Errorf("the token is %+v, %v", got, err)
		}
		// Callers without an access key, or with another's secret.
		for code, c := range map[string]*sqs.Client{"SignatureDoesNotMatch": s.aws(all.AccessKeyID, all.SecretAccessKey+"x"),
			"InvalidClientTokenId": s.aws("PAWL0000000000000000", all.SecretAccessKey)} {
			_, err := c.ListQueues(ctx, &sqs.ListQueuesInput{})
			wantCode(t, err, code)
		}
		plain := make(admin.TokenSpec{Name: "plain", Queues: []string{"*"}, Roles: []admin.Role{admin.RoleAdmin}})
		if plain.AccessKeyID != "" || plain.SecretAccessKey != "" {
			t.Errorf("a token without --sqs has the access key %q", plain.AccessKeyID)
		}
		if _, err := a.Access().CreateToken(ctx, admin.TokenSpec{Name: "both", Queues: []string{"*"},
			Roles: []admin.Role{admin.RoleObserve}, SQS: true, Certificate: "dns:a.example.com"}); err == nil ||
			!strings.Contains(err.Error(), "sqs") {
			t.Errorf("a token for a certificate got an access key: %v", err)
		}
		// An access key allows what its token allows.
		less := make(admin.TokenSpec{Name: "less", Roles: []admin.Role{admin.RoleConsume}, Queues: []string{"mail"}, SQS: true})
		limited := s.aws(less.AccessKeyID, less.SecretAccessKey)
		if got, err := limited.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: aws.String("mail")}); err != nil ||
			len(got.Messages) != 1 || *got.Messages[0].Body != big {
			t.Errorf("receive: %v", err)
		}
		_, err = limited.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: aws.String("mail"), MessageBody: aws.String("a")})
		wantCode(t, err, "AccessDenied")
		_, err = limited.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: aws.String("other")})
		wantCode(t, err, "AccessDenied")
		// A rotated token has another access key; the previous one stays valid for a while.
		hour := time.Hour
		next, err := a.Access().RotateToken(ctx, admin.TokenName{Name: "all"}, admin.Rotation{Overlap: &hour})
		if err != nil || next.AccessKeyID == all.AccessKeyID || next.SecretAccessKey == "" {
			t.Fatalf("rotate: %+v, %v", next, err)
		}
		list := func(c *sqs.Client) error {
			_, err := c.ListQueues(ctx, &sqs.ListQueuesInput{})
			return err
		}
		for _, c := range []*sqs.Client{c, s.aws(next.AccessKeyID, next.SecretAccessKey)} {
			if err := list(c); err != nil {
				t.Errorf("after the rotation: %v", err)
			}
		}
		time.Sleep(hour + time.Second)
		wantCode(t, list(c), "InvalidClientTokenId")
		if _, err := a.Access().RevokeToken(ctx, admin.TokenName{Name: "all"}); err != nil {
			t.Fatal(err)
		}
		wantCode(t, list(s.aws(next.AccessKeyID, next.SecretAccessKey)), "InvalidClientTokenId")
	})
}

// A long poll ends when the token of its access key is revoked.
func TestSQSLongPollOfARevokedToken(t *testing.T) {
	inAccess(t, func(t *testing.T, s *server, a admin.Client) {
		made, err := a.Access().CreateToken(t.Context(), admin.TokenSpec{Name: "all", Queues: []string{"*"},
			Roles: []admin.Role{admin.RoleAdmin}, SQS: true})
		if err != nil {
			t.Fatal(err)
		}
		c := s.aws(made.AccessKeyID, made.SecretAccessKey)
		if _, err := c.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: aws.String("mail")}); err != nil {
			t.Fatal(err)
		}
		began, ended := time.Now(), make(chan error, 1)
		go func() {
			_, err := c.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: aws.String("mail"), WaitTimeSeconds: 20})
			ended <- err
		}()
		time.Sleep(2 * time.Second)
		if _, err := a.Access().RevokeToken(t.Context(), admin.TokenName{Name: "all"}); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; err == nil || time.Since(began) > 10*time.Second {
			t.Errorf("the long poll ended with %v after %v", err, time.Since(began))
		}
	})
}

// Nothing large is read from an unknown caller, in either protocol.
func TestSQSReadsNoBodyBeforeAuthentication(t *testing.T) {
	inAccess(t, func(t *testing.T, s *server, _ admin.Client) {
		for _, kind := range []string{"application/x-amz-json-1.0", "application/x-www-form-urlencoded"} {
			body := &counted{left: 1 << 20}
			r, err := http.NewRequestWithContext(t.Context(), "POST", "http://localhost/000000000000/q", body)
			if err != nil {
				t.Fatal(err)
			}
			r.ContentLength = body.left
			r.Header.Set("Content-Type", kind)
			r.Header.Set("Authorization", fmt.Sprintf("AWS4-HMAC-SHA256 Credential=NOBODY/%s/us-east-1/sqs/aws4_request, "+
				"SignedHeaders=host, Signature=0", time.Now().UTC().Format("20060102")))
			r.Header.Set("X-Amz-Date", time.Now().UTC().Format("20060102T150405Z"))
			if resp, err := s.sqs().Do(r); err == nil { // otherwise the connection ended while the body was still being sent
				resp.Body.Close()
				if resp.StatusCode != http.StatusForbidden {
					t.Errorf("%s: %d", kind, resp.StatusCode)
				}
			}
			if read := 1<<20 - body.left; read > 600_000 { // net/http reads a part, so that the connection can be reused
				t.Errorf("%s: %d bytes of a stranger were read", kind, read)
			}
		}
	})
}

// counted is a body that counts how much of it is read.
type counted struct{ left int64 }

func (c *counted) Read(b []byte) (int, error) {
	n := min(int64(len(b)), c.left)
	c.left -= n
	return int(n), nil
}
