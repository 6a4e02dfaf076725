#!/bin/sh
# The command line of AWS, as its users type it.
set -eu
export AWS_DEFAULT_REGION=us-east-1 AWS_DEFAULT_OUTPUT=text AWS_PAGER=
sqs() { aws --endpoint-url "$SQS_URL" sqs "$@"; }
url=$(sqs create-queue --queue-name cli --attributes VisibilityTimeout=60 --query QueueUrl)
sqs send-message --queue-url "$url" --message-body 'a b&c=d' --message-attributes 'k={DataType=String,StringValue=v}' >/dev/null
body=$(sqs receive-message --queue-url "$url" --wait-time-seconds 5 --message-attribute-names All --query 'Messages[0].[Body,MessageAttributes.k.StringValue]')
[ "$body" = "a b&c=d	v" ] || { echo "received: $body" >&2; exit 1; }
n=$(sqs get-queue-attributes --queue-url "$url" --attribute-names All --query Attributes.ApproximateNumberOfMessagesNotVisible)
[ "$n" = 1 ] || { echo "in flight: $n" >&2; exit 1; }
sqs purge-queue --queue-url "$url"
sqs add-permission --queue-url "$url" --label l --aws-account-ids 111111111111 --actions SendMessage
sqs delete-queue --queue-url "$url"
if sqs get-queue-url --queue-name cli 2>/dev/null; then echo "the queue is still there" >&2; exit 1; fi
