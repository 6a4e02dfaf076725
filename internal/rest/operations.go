package rest

import (
	"net/http"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// startOperation answers a dry run with what the operation would affect.
func startOperation(x *exchange) error {
	got, err := ask[*pawlv1.StartOperationRequest, *pawlv1.StartOperationResponse](x, x.on.RPC, func(in *pawlv1.StartOperationRequest) error {
		return x.request(in)
	})
	if err != nil {
		return err
	}
	if p := got.GetPreview(); p != nil {
		x.open('{')
		x.boolean("dry_run", true)
		x.fieldsOf(p)
		x.close('}')
		return nil
	}
	x.status = http.StatusAccepted
	x.message(got.GetOperation())
	return nil
}
