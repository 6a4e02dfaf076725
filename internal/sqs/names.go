package sqs

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"regexp"
	"strings"

	"github.com/pawlq/pawl/internal/sqs/wire"
	"github.com/pawlq/pawl/internal/system/queues"
	"github.com/pawlq/pawl/internal/task"
)

// defaultAccount is the account of the default namespace: what clients assume when none is configured.
const defaultAccount = "000000000000"

const defaultNamespace = "default"

// accountOf returns the account number that stands for a namespace in URLs and ARNs. It is never looked up.
func accountOf(ns string) string {
	if ns == defaultNamespace {
		return defaultAccount
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(ns))
	return fmt.Sprintf("%012d", h.Sum64()%1e12)
}

// urlOf returns a queue's URL, with the host that the request was sent to: any other would make clients bypass their proxies. A
// proxy that ends TLS says so in a header, which can only mislead the client that sent it.
func (x *exchange) urlOf(queue string) string {
	scheme := "http"
	if x.r.TLS != nil || x.r.Header.Get("X-Forwarded-Proto") == "https" || forwardedTLS.MatchString(x.r.Header.Get("Forwarded")) {
		scheme = "https"
	}
	return scheme + "://" + x.r.Host + "/" + accountOf(x.Core.Namespace(x.ctx)) + "/" + queue
}

// forwardedTLS matches the header of a proxy that the client has reached by TLS.
var forwardedTLS = regexp.MustCompile(`(?i)^[^,]*\bproto="?https\b`)

const defaultRegion = "us-east-1"

// region returns the region that the request is signed for, from its Authorization header or, if presigned, from its URL.
func (x *exchange) region() string {
	_, scope, signed := strings.Cut(x.r.Header.Get("Authorization"), "Credential=")
	scope, _, _ = strings.Cut(scope, ",")
	if !signed {
		scope = x.r.URL.Query().Get("X-Amz-Credential")
	}
	if parts := strings.Split(scope, "/"); len(parts) == 5 && regionForm.MatchString(parts[2]) {
		return parts[2]
	}
	return defaultRegion
}

var regionForm = regexp.MustCompile(`^[a-z0-9-]{1,40}$`)

func (x *exchange) arnOf(queue string) string {
	return "arn:aws:sqs:" + x.region() + ":" + accountOf(x.Core.Namespace(x.ctx)) + ":" + queue
}

// queueOfARN returns the name of the queue in an ARN, ignoring region and account.
func queueOfARN(arn string) (string, bool) {
	parts := strings.SplitN(arn, ":", 6) // the name of a queue that other producers made may have colons
	if len(parts) != 6 || parts[0] != "arn" || parts[2] != "sqs" || parts[5] == "" {
		return "", false
	}
	return parts[5], true
}

// queueName returns the name of the request's queue: from its URL, ignoring the host; from a bare name; or from the request's own
// path.
func (x *exchange) queueName() (string, error) {
	if x.in.QueueURL == "" {
		if _, name, ok := splitPath(x.r.URL.Path); ok {
			return name, nil
		}
		return "", wire.Missing("QueueUrl")
	}
	return x.in.QueueURL[strings.LastIndexByte(x.in.QueueURL, '/')+1:], nil
}

// queue returns the queue that a request is about.
func (x *exchange) queue() (queues.Queue, error) { return x.find(x.Core.Queue) }

type lookup func(ctx context.Context, name string) (queues.Queue, bool, error)

func (x *exchange) find(in lookup) (queues.Queue, error) {
	name, err := x.queueName()
	if err != nil {
		return queues.Queue{}, err
	}
	return x.named(name, in)
}

func (x *exchange) named(name string, in lookup) (queues.Queue, error) {
	if task.CheckQueue("queue", name, task.DefaultLimits()) != nil {
		return queues.Queue{}, wire.ErrQueueDoesNotExist
	}
	q, ok, err := in(x.ctx, name)
	if err == nil && !ok || errors.Is(err, task.ErrNotFound) {
		return queues.Queue{}, wire.ErrQueueDoesNotExist
	}
	return q, err
}

// nameForm is the format of the names of queues, the IDs of a batch's entries, and the labels of permissions.
var nameForm = regexp.MustCompile(`^[A-Za-z0-9_-]{1,80}$`)

const fifoSuffix = ".fifo"
