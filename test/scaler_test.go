package test

import (
	"context"
	"crypto/tls"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/pawlq/pawl/api/keda"
)

// TestScalerByCertificate: with access control, KEDA's requests have the rights of its certificate's token (caCert,
// tlsClientCert and tlsClientKey of its trigger), for the queues of that token, until it is revoked.
func TestScalerByCertificate(t *testing.T) {
	ours, dir := newTrust(t), t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	operator := file("admin.token")
	run := func(args string) {
		t.Helper()
		if out, err := pawlOutput(t, args); err != nil {
			t.Fatalf("pawl %s: %v, %s", args, err, out)
		}
	}
	run("cert ca --out " + file("clients"))
	for _, name := range []string{"keda", "stranger"} {
		run("cert client " + name + " --ca " + file("clients") + " --out " + dir)
	}
	s := newServer(t, append(ours.flags(), "--auth", "--admin-token-file", operator, "--client-ca", file("clients/ca.crt"))...)
	s.start()
	as := " --token-file " + operator + " --tls-ca " + ours.ca + " --server https://" + s.addr
	run("token add keda --role observe --queue mail* --certificate uri:pawl://client/keda" + as)
	run("enqueue job --queue mail" + as)

	scaler := func(name string) keda.ExternalScalerClient {
		pair, err := tls.LoadX509KeyPair(file(name+".crt"), file(name+".key"))
		if err != nil {
			t.Fatal(err)
		}
		config := ours.config()
		config.Certificates = []tls.Certificate{pair}
		conn, err := grpc.NewClient(s.addr, grpc.WithTransportCredentials(credentials.NewTLS(config)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return keda.NewExternalScalerClient(conn)
	}
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	ref := func(queue string) *keda.ScaledObjectRef {
		return &keda.ScaledObjectRef{Name: "workers", Namespace: "prod", ScalerMetadata: map[string]string{"scalerAddress": s.addr,
			"queue": queue}}
	}
	asked := scaler("keda")
	stream, err := asked.StreamIsActive(ctx, ref("mail"))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := stream.Recv(); err != nil || !got.GetResult() {
		t.Errorf("Recv on the stream of a queue with a task: %v, %v", got, err)
	}
	if got, err := asked.GetMetrics(ctx, &keda.GetMetricsRequest{ScaledObjectRef: ref("mail"), MetricName: "pawl-slots-mail"}); err !=
		nil || got.GetMetricValues()[0].GetMetricValueFloat() < 1 {
		t.Errorf("GetMetrics for a queue with one task: %v, %v", got, err)
	}
	for queue, want := range map[string]codes.Code{"mail": codes.OK, "mail-no-task-yet": codes.OK, "video": codes.PermissionDenied} {
		if got, err := asked.IsActive(ctx, ref(queue)); status.Code(err) != want || got.GetResult() != (queue == "mail") {
			t.Errorf("IsActive(%q): %v, %v; want %v", queue, got, err, want)
		}
	}
	if _, err := scaler("stranger").IsActive(ctx, ref("mail")); status.Code(err) != codes.Unauthenticated {
		t.Errorf("a call with a certificate that has no token: %v, want Unauthenticated", err)
	}
	run("token revoke keda" + as)
	for err = nil; err == nil; { // the end of the stream, whatever comes before
		_, err = stream.Recv()
	}
	if _, again := asked.IsActive(ctx, ref("mail")); status.Code(err) != codes.Unauthenticated ||
		status.Code(again) != codes.Unauthenticated {
		t.Errorf("after the token was revoked the stream ended with %v, and a call with %v; want Unauthenticated", err, again)
	}
}
