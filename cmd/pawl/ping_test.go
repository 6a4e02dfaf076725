package main

import (
	"bytes"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/types/known/emptypb"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/cmd/internal/cli"
)

// A server that requires tokens counts a call without one as refused, so without a token a ping is only a check.
func TestPingCausesNoRefusal(t *testing.T) {
	asked := false
	addr := serveFake(t, func(method string, stream grpc.ServerStream) error {
		if err := stream.RecvMsg(&emptypb.Empty{}); err != nil {
			return err
		}
		if strings.HasSuffix(method, "/Check") {
			return stream.SendMsg(&grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_SERVING})
		}
		asked = true
		return stream.SendMsg(&pawlv1.GetServerResponse{Node: "n1", Version: "1.2.3"})
	})
	for flags, asks := range map[string]bool{"": false, " --token t": true} {
		asked = false
		var out, said bytes.Buffer
		exit := run(strings.Fields("ping --server "+addr+flags), strings.NewReader(""), &out, &said)
		if exit != cli.ExitDone || asked != asks || strings.Contains(out.String(), "node n1 (pawl 1.2.3)") != asks {
			t.Errorf("pawl ping%s: status %d, %s%s, asks for the node: %v, want %v", flags, exit, &out, &said, asked, asks)
		}
	}
}
