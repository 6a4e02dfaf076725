package gateway

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/task"
)

// codeOK is the code of a call that was not refused, where calls are counted.
const codeOK = "ok"

// observed tells of a call that has ended.
func (g *Gateway) observed(face, method string, err error, took time.Duration) {
	g.cfg.Observe(face, method, codeOf(err), took)
}

// codeOf is the code of a call as its answer has it.
func codeOf(err error) string {
	e, refused := task.AsError(err)
	switch {
	case err == nil:
		return codeOK
	case refused:
		return string(e.Code)
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return string(task.CodeUnavailable)
	}
	return string(contract.CodeInternal)
}

// rpcName is a method as it is counted: Service/Method.
func rpcName(full string) string {
	if ours, ok := strings.CutPrefix(full, apiPackage); ok {
		return ours
	}
	return strings.TrimPrefix(full, "/")
}
