// A producer and a worker that run until they are killed: "feed N" sends numbered messages from N on, so many a second, "work" handles them.
// Each writes down what it did.
import { appendFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const require = createRequire(process.env.NODE_HOME + "/");
const load = async (name) => import(pathToFileURL(require.resolve(name)));
const { SQSClient, CreateQueueCommand } = await load("@aws-sdk/client-sqs");
const { Consumer } = await load("sqs-consumer");
const { Producer } = await load("sqs-producer");

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const sqs = new SQSClient({ endpoint: process.env.SQS_URL, region: "us-east-1" });

/** Repeats a call until the server is there. */
async function insist(call) {
  for (;;) {
    try {
      return await call();
    } catch {
      await pause(500);
    }
  }
}

const { QueueUrl: queueUrl } = await insist(() => sqs.send(new CreateQueueCommand({ QueueName: "steady", Attributes: { VisibilityTimeout: "10" } })));
if (process.argv[2] === "work") {
  const consumer = Consumer.create({ queueUrl, sqs, waitTimeSeconds: 2, batchSize: 10,
    handleMessage: async (message) => {
      await pause(20);
      appendFileSync(process.env.RUNS, `node ${message.Body}\n`);
      return message;
    } });
  consumer.on("error", () => {});
  consumer.on("processing_error", () => {});
  consumer.start();
} else {
  const producer = Producer.create({ queueUrl, sqs });
  for (let n = Number(process.argv[3]); ; n++) {
    await insist(() => producer.send(`${n}`));
    appendFileSync(process.env.SENT, `node ${n}\n`);
    await pause(1000 / Number(process.env.RATE));
  }
}
