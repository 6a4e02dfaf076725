package rest

import (
	"net/http"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// startOperation answers a dry run with what the operation would affect.
func startOperation(x *exchange) error {
	got, err := ask[*pawlv1.StartOperationRequest, *pawlv1.StartOperationResponse](x, x.on.RPC,
		func(in *pawlv1.StartOperationRequest) error {
			return x.request(in)
		})
	if err != nil {
		return err
	}
	if p := got.GetPreview(); p != nil {
		x.Open('{')
		x.Boolean("dry_run", true)
		x.Fields(p)
		x.Close('}')
		return nil
	}
	x.status = http.StatusAccepted
	x.Message(got.GetOperation())
	return nil
}
