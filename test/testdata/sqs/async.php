<?php
// async-aws, on which Symfony's messenger stands.
foreach (['/usr/share/php/AsyncAws/Sqs/autoload.php', '/usr/share/php/Symfony/Component/HttpClient/autoload.php'] as $file) {
    require_once $file;
}
$sqs = new AsyncAws\Sqs\SqsClient(['endpoint' => getenv('SQS_URL'), 'region' => 'us-east-1']);
$url = $sqs->createQueue(['QueueName' => 'php'])->getQueueUrl();
$sqs->sendMessage(['QueueUrl' => $url, 'MessageBody' => 'from php', 'DelaySeconds' => 0])->resolve();
$got = iterator_to_array($sqs->receiveMessage(['QueueUrl' => $url, 'WaitTimeSeconds' => 5])->getMessages());
if (count($got) !== 1 || $got[0]->getBody() !== 'from php') {
    fwrite(STDERR, 'received ' . count($got) . " messages\n");
    exit(1);
}
$sqs->deleteMessage(['QueueUrl' => $url, 'ReceiptHandle' => $got[0]->getReceiptHandle()])->resolve();
if (!$sqs->queueExists(['QueueName' => 'php'])->isSuccess()) {
    exit(1);
}
