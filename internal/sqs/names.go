package sqs

import (
	"errors"
	"fmt"
	"hash/fnv"
	"regexp"
	"strings"

	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/sqs/wire"
	"github.com/pawlq/pawl/internal/task"
)

// defaultAccount is that of the default namespace: what clients assume that were told of none.
const defaultAccount = "000000000000"

const defaultNamespace = "default"

// accountOf is the account number by which a namespace goes in URLs and ARNs. Nothing is found by it.
func accountOf(ns string) string {
	if ns == defaultNamespace {
		return defaultAccount
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(ns))
	return fmt.Sprintf("%012d", h.Sum64()%1e12)
}

// urlOf is a queue's URL at the host that the request was sent to: another would lead clients round their proxies.
func (x *exchange) urlOf(queue string) string {
	scheme := "http"
	if x.r.TLS != nil {
		scheme = "https"
	}
	return scheme + "://" + x.r.Host + "/" + accountOf(x.Core.Namespace(x.ctx)) + "/" + queue
}

const defaultRegion = "us-east-1"

// region is the one that the request is signed for, by its header or, where it is presigned, by its URL.
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

// queueOfARN is the name of a queue in an ARN, whatever its region and account.
func queueOfARN(arn string) (string, bool) {
	parts := strings.Split(arn, ":")
	if len(parts) != 6 || parts[0] != "arn" || parts[2] != "sqs" || parts[5] == "" {
		return "", false
	}
	return parts[5], true
}

// queueName is the queue that a request is about: by its URL, whatever the host; by its bare name; or by the request's own path.
func (x *exchange) queueName() (string, error) {
	if x.in.QueueURL == "" {
		if _, name, ok := splitPath(x.r.URL.Path); ok {
			return name, nil
		}
		return "", wire.Missing("QueueUrl")
	}
	return x.in.QueueURL[strings.LastIndexByte(x.in.QueueURL, '/')+1:], nil
}

// queue finds the queue that a request is about.
func (x *exchange) queue() (cluster.Queue, error) {
	name, err := x.queueName()
	if err != nil {
		return cluster.Queue{}, err
	}
	return x.named(name)
}

func (x *exchange) named(name string) (cluster.Queue, error) {
	if task.CheckQueue("queue", name, task.DefaultLimits()) != nil {
		return cluster.Queue{}, wire.ErrQueueDoesNotExist
	}
	q, ok, err := x.Core.Queue(x.ctx, name)
	if err == nil && !ok || errors.Is(err, task.ErrNotFound) {
		return cluster.Queue{}, wire.ErrQueueDoesNotExist
	}
	return q, err
}

var nameForm = regexp.MustCompile(`^[A-Za-z0-9_-]{1,80}$`)

const fifoSuffix = ".fifo"
