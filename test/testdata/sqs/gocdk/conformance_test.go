package gocdk

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"gocloud.dev/pubsub/awssnssqs"
	"gocloud.dev/pubsub/driver"
	"gocloud.dev/pubsub/drivertest"
)

// TestConformance runs all cases of the suite.
func TestConformance(t *testing.T) {
	drivertest.RunConformanceTests(t, newHarness, nil)
}

// harness gives the suite queues of the server at SQS_URL.
type harness struct {
	client *sqs.Client
	urls   map[driver.Topic]string
	queues atomic.Uint32
}

func newHarness(ctx context.Context, t *testing.T) (drivertest.Harness, error) {
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return nil, err
	}
	client := sqs.NewFromConfig(cfg, func(o *sqs.Options) { o.BaseEndpoint = aws.String(os.Getenv("SQS_URL")) })
	return &harness{client: client, urls: map[driver.Topic]string{}}, nil
}

func (h *harness) CreateTopic(ctx context.Context, test string) (driver.Topic, func(), error) {
	name := strings.NewReplacer("TestConformance/Test", "gocdk-", "/", "-", " ", "-").Replace(test)
	created, err := h.client.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: aws.String(fmt.Sprintf("%.70s-%d", name, h.queues.Add(1)))})
	if err != nil {
		return nil, nil, err
	}
	topic := openSQSTopic(ctx, h.client, *created.QueueUrl, &awssnssqs.TopicOptions{})
	h.urls[topic] = *created.QueueUrl
	return topic, func() { _, _ = h.client.DeleteQueue(ctx, &sqs.DeleteQueueInput{QueueUrl: created.QueueUrl}) }, nil
}

const missing = "https://sqs.us-east-1.amazonaws.com/000000000000/nonexistent"

func (h *harness) MakeNonexistentTopic(ctx context.Context) (driver.Topic, error) {
	return openSQSTopic(ctx, h.client, missing, &awssnssqs.TopicOptions{}), nil
}

func (h *harness) CreateSubscription(ctx context.Context, topic driver.Topic, _ string) (driver.Subscription, func(), error) {
	return openSubscription(ctx, h.client, h.urls[topic], &awssnssqs.SubscriptionOptions{}), func() {}, nil
}

func (h *harness) MakeNonexistentSubscription(ctx context.Context) (driver.Subscription, func(), error) {
	return openSubscription(ctx, h.client, missing, &awssnssqs.SubscriptionOptions{}), func() {}, nil
}

func (h *harness) Close() {}

// MaxBatchSizes are those of SQS.
func (h *harness) MaxBatchSizes() (send, ack int) { return 10, 10 }

// SupportsMultipleSubscriptions is false: SQS without SNS has one queue for all subscriptions of a topic.
func (h *harness) SupportsMultipleSubscriptions() bool { return false }
