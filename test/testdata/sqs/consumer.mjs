// sqs-producer and sqs-consumer, with the current library of AWS, on a standard and on a FIFO queue.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const require = createRequire(process.env.NODE_HOME + "/");
const load = async (name) => import(pathToFileURL(require.resolve(name)));
const { SQSClient, CreateQueueCommand, GetQueueAttributesCommand, SetQueueAttributesCommand, StartMessageMoveTaskCommand, ListMessageMoveTasksCommand, SendMessageCommand } =
  await load("@aws-sdk/client-sqs");
const { Consumer } = await load("sqs-consumer");
const { Producer } = await load("sqs-producer");

const sqs = new SQSClient({ endpoint: process.env.SQS_URL, region: "us-east-1" });
const create = async (name, attributes) => (await sqs.send(new CreateQueueCommand({ QueueName: name, Attributes: attributes }))).QueueUrl;
const arnOf = async (url) => (await sqs.send(new GetQueueAttributesCommand({ QueueUrl: url, AttributeNames: ["QueueArn"] }))).Attributes.QueueArn;

/** Handles messages until so many are done, and returns their bodies. */
async function consume(queueUrl, wanted, options, handle = () => {}) {
  const bodies = [];
  await new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`${bodies.length} of ${wanted} messages of ${queueUrl}`)), 60_000);
    const consumer = Consumer.create({
      queueUrl, sqs, waitTimeSeconds: 1, batchSize: 10, ...options,
      handleMessage: async (message) => {
        await handle(message);
        bodies.push(message.Body);
        return message;
      },
    });
    consumer.on("message_processed", () => { if (bodies.length >= wanted) { consumer.stop(); } });
    consumer.on("stopped", () => { clearTimeout(timer); resolve(); });
    consumer.on("error", reject);
    consumer.start();
  });
  return bodies;
}

const q = await create("node", { VisibilityTimeout: "5" });
const producer = Producer.create({ queueUrl: q, sqs });
const bodies = Array.from({ length: 50 }, (_, i) => `m${i}`);
await producer.send(bodies);
assert.equal(await producer.queueSize(), 50);
assert.deepEqual((await consume(q, 50)).sort(), [...bodies].sort());

// A handler that fails has its message again, after terminateVisibilityTimeout at once.
await producer.send("again");
let failures = 0;
const failing = Consumer.create({ queueUrl: q, sqs, waitTimeSeconds: 1, terminateVisibilityTimeout: true,
  handleMessage: async (message) => {
    if (failures++ < 2) {
      throw new Error("not yet");
    }
    return message;
  } });
await new Promise((resolve) => {
  failing.on("message_processed", () => failing.stop());
  failing.on("processing_error", () => {});
  failing.on("stopped", resolve);
  failing.start();
});
assert.equal(failures, 3);

// Order within a group.
const fifo = await create("node.fifo", { FifoQueue: "true" });
await Producer.create({ queueUrl: fifo, sqs }).send(Array.from({ length: 30 }, (_, i) => (
  { id: `${i}`, body: `${i}`, groupId: `g${i % 3}`, deduplicationId: `${i}` })));
const order = (await consume(fifo, 30)).map(Number);
for (let g = 0; g < 3; g++) {
  const group = order.filter((n) => n % 3 === g);
  assert.deepEqual(group, [...group].sort((a, b) => a - b), `group ${g} came as ${group}`);
}

// Dead letters, and the way back.
const dead = await create("node-dead");
const deadArn = await arnOf(dead);
await sqs.send(new SetQueueAttributesCommand({ QueueUrl: q, Attributes: { RedrivePolicy: JSON.stringify({ deadLetterTargetArn: deadArn, maxReceiveCount: 1 }) } }));
await sqs.send(new SendMessageCommand({ QueueUrl: q, MessageBody: "poison" }));
const poisoned = Consumer.create({ queueUrl: q, sqs, waitTimeSeconds: 1, terminateVisibilityTimeout: true, handleMessage: async () => { throw new Error("poison"); } });
poisoned.on("processing_error", () => {});
poisoned.start();
const size = async () => Number((await sqs.send(new GetQueueAttributesCommand({ QueueUrl: dead, AttributeNames: ["ApproximateNumberOfMessages"] }))).Attributes.ApproximateNumberOfMessages);
for (let tries = 0; (await size()) === 0; tries++) {
  assert.ok(tries < 300, "the message did not become a dead letter");
  await new Promise((resolve) => setTimeout(resolve, 100));
}
poisoned.stop({ abort: true });
await sqs.send(new StartMessageMoveTaskCommand({ SourceArn: deadArn }));
assert.deepEqual(await consume(q, 1), ["poison"]);
for (let tries = 0; ; tries++) {
  const [move] = (await sqs.send(new ListMessageMoveTasksCommand({ SourceArn: deadArn }))).Results;
  if (move.Status === "COMPLETED") {
    assert.equal(move.ApproximateNumberOfMessagesMoved, 1);
    break;
  }
  assert.ok(tries < 300, `the move task is ${move.Status}`);
  await new Promise((resolve) => setTimeout(resolve, 100));
}
