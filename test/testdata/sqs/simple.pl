# Amazon::SQS::Simple, which sends a form with the header of the JSON protocol.
use strict;
use warnings;
use Amazon::SQS::Simple;

my $sqs = Amazon::SQS::Simple->new($ENV{AWS_ACCESS_KEY_ID}, $ENV{AWS_SECRET_ACCESS_KEY}, Endpoint => $ENV{SQS_URL}, Region => 'us-east-1', Timeout => 20);
$sqs->CreateQueue('perl');
# Its Host header has no port, so that URLs of queues in answers have none: one is given.
my $queue = $sqs->GetQueue("$ENV{SQS_URL}/000000000000/perl");
my $sent = $queue->SendMessage('from perl: ü & +');
die 'no id' unless $sent->MessageId;
my $message = $queue->ReceiveMessage(WaitTimeSeconds => 5) or die 'no message';
die 'received ' . $message->MessageBody unless $message->MessageBody eq 'from perl: ü & +';
$queue->DeleteMessage($message);
die 'it is still there' if $queue->ReceiveMessage();
