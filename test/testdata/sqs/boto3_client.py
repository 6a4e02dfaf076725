"""The life of messages through boto3, as its users write it. Exits with an error if something is not as the service has it."""

import hashlib
import json
import os
import sys
import urllib.request

import boto3
from botocore.exceptions import ClientError

url = os.environ["SQS_URL"]
name = f"boto-{os.getpid()}"  # two versions may run against one server
sqs = boto3.client("sqs", endpoint_url=url, region_name="eu-west-1")


def refused(code, call, **args):
    try:
        call(**args)
    except ClientError as error:
        assert error.response["Error"]["Code"] == code, (code, error.response)
    else:
        raise AssertionError(f"not refused: {args}")


# A standard queue.
q = sqs.create_queue(QueueName=name, Attributes={"VisibilityTimeout": "5"}, tags={"team": "a"})["QueueUrl"]
assert q.startswith(url), q
assert sqs.create_queue(QueueName=name)["QueueUrl"] == q
assert sqs.list_queue_tags(QueueUrl=q)["Tags"] == {"team": "a"}
assert q in sqs.list_queues(QueueNamePrefix="bo")["QueueUrls"]
refused("AWS.SimpleQueueService.NonExistentQueue", sqs.get_queue_url, QueueName="none")
refused("InvalidParameterValue", sqs.receive_message, QueueUrl=q, MaxNumberOfMessages=11)

body = "héllo \r\n\t \U0001f600 <&>"
attributes = {
    "n": {"DataType": "Number", "StringValue": "1.5"},
    "s": {"DataType": "String.json", "StringValue": "{}"},
    "b": {"DataType": "Binary", "BinaryValue": b"\x00\xff"},
}
sent = sqs.send_message(QueueUrl=q, MessageBody=body, MessageAttributes=attributes)  # boto3 compares the MD5s itself
assert sent["MD5OfMessageBody"] == hashlib.md5(body.encode()).hexdigest()
got = sqs.receive_message(QueueUrl=q, AttributeNames=["All"], MessageAttributeNames=["All"], WaitTimeSeconds=5)["Messages"]
assert len(got) == 1 and got[0]["Body"] == body and got[0]["MessageAttributes"] == attributes, got
assert got[0]["MessageId"] == sent["MessageId"] and got[0]["Attributes"]["ApproximateReceiveCount"] == "1"
sqs.change_message_visibility(QueueUrl=q, ReceiptHandle=got[0]["ReceiptHandle"], VisibilityTimeout=0)
again = sqs.receive_message(QueueUrl=q, AttributeNames=["ApproximateReceiveCount"])["Messages"][0]
assert again["Attributes"]["ApproximateReceiveCount"] == "2"
sqs.delete_message(QueueUrl=q, ReceiptHandle=again["ReceiptHandle"])

batch = sqs.send_message_batch(QueueUrl=q, Entries=[{"Id": str(i), "MessageBody": f"m{i}"} for i in range(10)])
assert len(batch["Successful"]) == 10 and "Failed" not in batch
bodies = set()
while len(bodies) < 10:
    messages = sqs.receive_message(QueueUrl=q, MaxNumberOfMessages=10, WaitTimeSeconds=5)["Messages"]
    bodies |= {m["Body"] for m in messages}
    done = sqs.delete_message_batch(QueueUrl=q, Entries=[{"Id": str(i), "ReceiptHandle": m["ReceiptHandle"]} for i, m in enumerate(messages)])
    assert len(done["Successful"]) == len(messages)
assert "Messages" not in sqs.receive_message(QueueUrl=q)
large = "x" * (1 << 20)
sqs.send_message(QueueUrl=q, MessageBody=large)
assert sqs.receive_message(QueueUrl=q, WaitTimeSeconds=5)["Messages"][0]["Body"] == large
sqs.purge_queue(QueueUrl=q)

# A presigned URL of a queue, as a browser opens it.
presigned = sqs.generate_presigned_url("get_queue_attributes", Params={"QueueUrl": q, "AttributeNames": ["QueueArn"]}, HttpMethod="GET")
if boto3.__version__ < "1.28":  # later ones sign the JSON protocol, of which a URL has no body
    with urllib.request.urlopen(presigned) as answer:
        assert b"arn:aws:sqs:eu-west-1:000000000000:" + name.encode() in answer.read()

# A FIFO queue with a dead-letter queue.
dead = sqs.create_queue(QueueName=name + "-dead.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
arn = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1})
f = sqs.create_queue(QueueName=name + ".fifo", Attributes={"FifoQueue": "true", "ContentBasedDeduplication": "true", "RedrivePolicy": policy})["QueueUrl"]
first = sqs.send_message(QueueUrl=f, MessageBody="1", MessageGroupId="g")
twice = sqs.send_message(QueueUrl=f, MessageBody="1", MessageGroupId="g")
assert (first["MessageId"], first["SequenceNumber"]) == (twice["MessageId"], twice["SequenceNumber"])
sqs.send_message(QueueUrl=f, MessageBody="2", MessageGroupId="g")
messages = sqs.receive_message(QueueUrl=f, MaxNumberOfMessages=10, AttributeNames=["All"], WaitTimeSeconds=5)["Messages"]
assert [m["Body"] for m in messages] == ["1", "2"] and messages[0]["Attributes"]["MessageGroupId"] == "g"
for m in messages:
    sqs.change_message_visibility(QueueUrl=f, ReceiptHandle=m["ReceiptHandle"], VisibilityTimeout=0)
assert "Messages" not in sqs.receive_message(QueueUrl=f, WaitTimeSeconds=1)
messages = sqs.receive_message(QueueUrl=dead, MaxNumberOfMessages=10, AttributeNames=["All"], WaitTimeSeconds=5)["Messages"]
assert [m["Body"] for m in messages] == ["1", "2"], messages
sources = sqs.list_dead_letter_source_queues(QueueUrl=dead)["queueUrls"]
assert sources == [f], sources
sqs.delete_queue(QueueUrl=f)

# Another secret opens nothing.
wrong = boto3.client("sqs", endpoint_url=url, region_name="eu-west-1",
                     aws_access_key_id=os.environ["AWS_ACCESS_KEY_ID"], aws_secret_access_key="wrong")
refused("SignatureDoesNotMatch", wrong.list_queues)
print("boto3", boto3.__version__, file=sys.stderr)
