package bench

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/spf13/cobra"

	"github.com/pawlq/pawl/cmd/internal/cli"
)

// sqsBatch is the maximum size of a batch in SQS.
const sqsBatch = 10

// sqsBenchmarks are the cases that use the AWS SDK for Go as an SQS client.
var sqsBenchmarks = []benchmark{
	{"sqs-send", "Amazon SQS clients that send a message and wait for the answer", 10 * time.Second, sqsCallers(32), benchSQSSend},
	{"sqs-send-batch", "Amazon SQS clients that send batches of 10", 10 * time.Second, sqsCallers(16), benchSQSBatch},
	{"sqs-receive", "Amazon SQS clients that receive 10 messages and delete them in one batch", 0, func(cmd *cobra.Command, f *flags) {
		sqsCallers(16)(cmd, f)
		cmd.Flags().IntVar(&f.tasks, "messages", 100_000, "messages in the queue")
	}, benchSQSReceive},
}

func sqsCallers(n int) func(*cobra.Command, *flags) {
	return func(cmd *cobra.Command, f *flags) {
		cmd.Flags().IntVar(&f.producers, "callers", n, "concurrent callers")
	}
}

// sqsRun is a queue behind the SQS endpoint. The server was started with --sqs.
type sqsRun struct {
	*run
	client *sqs.Client
	url    *string
}

func newSQSRun(ctx context.Context, r *run) (*sqsRun, error) {
	key := credentials.NewStaticCredentialsProvider(cmp.Or(os.Getenv("AWS_ACCESS_KEY_ID"), "any"),
		cmp.Or(os.Getenv("AWS_SECRET_ACCESS_KEY"),
			"any"), "")
	s := &sqsRun{run: r, client: sqs.New(sqs.Options{Region: "us-east-1", BaseEndpoint: aws.String("http://" + r.app.Server),
		Credentials: key, HTTPClient: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: r.producers}}})}
	made, err := s.client.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: &r.queue})
	if err != nil {
		return nil, fmt.Errorf("%w (the server must run with --sqs, and if it requires tokens, AWS_ACCESS_KEY_ID and "+
			"AWS_SECRET_ACCESS_KEY must be set)", err)
	}
	s.url = made.QueueUrl
	return s, nil
}

// body returns a text of the case's payload size.
func (s *sqsRun) body() *string {
	text := base64.StdEncoding.EncodeToString(s.task().Payload)[:s.payload]
	return &text
}

// measure has callers repeat a call on n messages until the duration is over.
func (s *sqsRun) measure(ctx context.Context, n int, of string, call func() error) (*result, error) {
	line, err := s.produce(ctx, s.producers, n, of, call)
	if line != nil {
		line.Unit, line.Setting = "messages/s", fmt.Sprintf("%d callers of aws-sdk-go-v2", s.producers)
	}
	return line, err
}

func benchSQSSend(ctx context.Context, r *run) (*result, error) {
	s, err := newSQSRun(ctx, r)
	if err != nil {
		return nil, err
	}
	return s.measure(ctx, 1, "one SendMessage", func() error {
		_, err := s.client.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: s.url, MessageBody: s.body()})
		return err
	})
}

func benchSQSBatch(ctx context.Context, r *run) (*result, error) {
	s, err := newSQSRun(ctx, r)
	if err != nil {
		return nil, err
	}
	return s.measure(ctx, sqsBatch, "one SendMessageBatch of 10", func() error { return s.sendBatch(ctx, sqsBatch) })
}

func (s *sqsRun) sendBatch(ctx context.Context, n int) error {
	in := &sqs.SendMessageBatchInput{QueueUrl: s.url}
	for i := range n {
		in.Entries = append(in.Entries, types.SendMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(i)), MessageBody: s.body()})
	}
	got, err := s.client.SendMessageBatch(ctx, in)
	if err == nil && len(got.Failed) > 0 {
		err = fmt.Errorf("a message was refused: %s", aws.ToString(got.Failed[0].Message))
	}
	return err
}

func benchSQSReceive(ctx context.Context, r *run) (*result, error) {
	if r.tasks == 0 {
		return nil, cli.Usage("--messages is 0")
	}
	s, err := newSQSRun(ctx, r)
	if err != nil {
		return nil, err
	}
	var toSend, deleted atomic.Int64
	toSend.Store(int64(r.tasks))
	if _, err := s.each(func(*histogram) (more bool, err error) {
		n := toSend.Add(-sqsBatch) + sqsBatch
		if n <= 0 {
			return false, nil
		}
		return true, s.sendBatch(ctx, int(min(n, sqsBatch)))
	}); err != nil {
		return nil, err
	}
	meter := r.startMeter()
	h, err := s.each(func(h *histogram) (more bool, err error) {
		if deleted.Load() >= int64(r.tasks) {
			return false, nil
		}
		began := time.Now()
		n, err := s.receive(ctx)
		if n > 0 {
			h.record(time.Since(began))
		}
		deleted.Add(int64(n))
		return true, err
	})
	spent := meter.stop()
	return finish("messages/s", "one ReceiveMessage and one DeleteMessageBatch of up to 10",
		fmt.Sprintf("%d callers of aws-sdk-go-v2, every delete answered", r.producers), deleted.Load(), spent, h), err
}

// each has callers repeat a call while there is more to do.
func (s *sqsRun) each(call func(*histogram) (more bool, err error)) (*histogram, error) {
	var all sync.WaitGroup
	hists, errs := make([]histogram, s.producers), make([]error, s.producers)
	for i := range s.producers {
		all.Go(func() {
			for more := true; more && errs[i] == nil; {
				more, errs[i] = call(&hists[i])
			}
		})
	}
	all.Wait()
	var h histogram
	for i := range hists {
		h.add(&hists[i])
	}
	return &h, errors.Join(errs...)
}

// receive receives and deletes up to 10 messages.
func (s *sqsRun) receive(ctx context.Context) (int, error) {
	got, err := s.client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: s.url, MaxNumberOfMessages: sqsBatch})
	if err != nil || len(got.Messages) == 0 {
		return 0, err
	}
	in := &sqs.DeleteMessageBatchInput{QueueUrl: s.url}
	for i := range got.Messages {
		in.Entries = append(in.Entries, types.DeleteMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(i)),
			ReceiptHandle: got.Messages[i].ReceiptHandle})
	}
	done, err := s.client.DeleteMessageBatch(ctx, in)
	if err == nil && len(done.Failed) > 0 {
		err = fmt.Errorf("a message was not deleted: %s", aws.ToString(done.Failed[0].Message))
	}
	return len(got.Messages), err
}
