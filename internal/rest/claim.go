package rest

import (
	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/task"
)

func claim(x *exchange) error {
	got, err := ask[*pawlv1.ClaimRequest, *pawlv1.ClaimResponse](x, x.on.RPC, func(in *pawlv1.ClaimRequest) error {
		err := x.request(in)
		if err == nil && in.GetOrder() == pawlv1.Order_ORDER_STRICT && len(in.GetQueues()) > 0 && in.GetQueues()[0].GetWeight() > 0 {
			err = task.Invalid("order", "strict needs queues as a list: an object has no order")
		}
		return err
	})
	if err != nil {
		return err
	}
	x.answer(got)
	return nil
}
