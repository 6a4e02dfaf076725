// Package gocdk runs the conformance suite of the Go CDK's pubsub drivers through its driver of Amazon SQS. It is a
// module of its own, so that Pawl does not depend on the Go CDK.
package gocdk

import (
	"context"
	_ "unsafe" // for go:linkname

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"gocloud.dev/pubsub/awssnssqs"
	"gocloud.dev/pubsub/driver"
)

// The suite tests drivers, and awssnssqs exports only the types that wrap them: its own tests call these two.

//go:linkname openSQSTopic gocloud.dev/pubsub/awssnssqs.openSQSTopic
func openSQSTopic(ctx context.Context, client *sqs.Client, url string, opts *awssnssqs.TopicOptions) driver.Topic

//go:linkname openSubscription gocloud.dev/pubsub/awssnssqs.openSubscription
func openSubscription(ctx context.Context, client *sqs.Client, url string, opts *awssnssqs.SubscriptionOptions) driver.Subscription
