// BullMQ: many jobs by `addBulk`, a worker with 200 jobs at once; completed jobs are kept, and counted.
import { fork } from "node:child_process";
import { fileURLToPath } from "node:url";
import { Queue, Worker } from "bullmq";
import { Handled, count, now, report_result, url, what } from "./driver_report.mjs";

const QUEUE = "bench";
const AT_ONCE = 1000; // jobs of one addBulk
const place = new URL(url);
const connection = {
  host: place.hostname, port: Number(place.port || 6379), db: Number(place.pathname.slice(1) || 0), maxRetriesPerRequest: null,
};
const nanoseconds = () => Number(process.hrtime.bigint());

if (what === "serve") { // the worker of the latency, in a process of its own
  const worker = new Worker(QUEUE, async (job) => { process.send({ n: job.data.n, at: nanoseconds() }); }, { connection });
  await worker.waitUntilReady();
  process.send("ready");
  process.on("message", async () => { await worker.close(); process.exit(0); });
} else {
  const queue = new Queue(QUEUE, { connection });
  await queue.waitUntilReady();
  const began = now();
  if (what === "one") {
    for (let n = 0; n < count; n += 1) await queue.add("nothing", { n });
  } else if (what !== "latency") {
    for (let first = 0; first < count; first += AT_ONCE) {
      const some = Array.from({ length: Math.min(AT_ONCE, count - first) }, (_, n) => ({ name: "nothing", data: { n: first + n } }));
      await queue.addBulk(some);
    }
  }
  const seconds = now() - began;
  if (what === "drain") {
    const handled = new Handled(count);
    const worker = new Worker(QUEUE, async () => { handled.add(); }, { connection, concurrency: 200 });
    const left = async () => { const counts = await queue.getJobCounts("waiting", "active"); return counts.waiting + counts.active; };
    const taken = await handled.secondsUntil(left);
    report_result((await queue.getJobCounts("completed")).completed, taken);
    await worker.close();
  } else if (what === "latency") {
    const returned = [];
    const starts = [];
    const child = fork(fileURLToPath(import.meta.url), ["serve", "0"], { env: process.env });
    await new Promise((resolve) => child.once("message", resolve));
    const all = new Promise((resolve) => child.on("message", (message) => { starts.push(message); if (starts.length === count) resolve(); }));
    for (let n = 0; n < count; n += 1) {
      await new Promise((resolve) => setTimeout(resolve, 10 + 20 * Math.random()));
      await queue.add("timed", { n });
      returned[n] = nanoseconds();
    }
    await all;
    child.send("end");
    const spans = starts.map(({ n, at }) => at - returned[n]).sort((one, other) => one - other);
    report_result(spans.length, spans[Math.floor(spans.length / 2)] / 1e9); // the median, in seconds
  } else {
    report_result((await queue.getJobCounts("waiting")).waiting, seconds);
  }
  process.exit(0);
}
