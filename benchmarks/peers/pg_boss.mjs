// pg-boss: batches of 1,000, each done or failed as one, fetched without a pause while they come full; many jobs by `insert`.
import * as boss from "pg-boss";
import pg from "pg";
import { Handled, count, now, report_result, url, what } from "./driver_report.mjs";

const QUEUE = "bench";
const PgBoss = boss.PgBoss ?? boss.default;
const client = new PgBoss({ connectionString: url, max: 10 });
client.on("error", (error) => { console.error(`Error: ${error.message}`); process.exit(1); });
const pool = new pg.Pool({ connectionString: url, max: 1 });
const number = async (where) =>
  Number((await pool.query(`select count(*) as number from pgboss.job where name = '${QUEUE}' and ${where}`)).rows[0].number);

await client.start();
await client.createQueue(QUEUE);
const began = now();
if (what === "one") {
  for (let n = 0; n < count; n += 1) await client.send(QUEUE, { n });
} else {
  await client.insert(QUEUE, Array.from({ length: count }, (_, n) => ({ data: { n } })));
}
const seconds = now() - began;
if (what !== "drain") {
  report_result(await number("state = 'created'"), seconds);
} else {
  const handled = new Handled(count);
  await client.work(
    QUEUE,
    { batchSize: 1000, pollingIntervalSeconds: 0.5, burstWhenBatchFull: true },
    async (jobs) => { handled.add(jobs.length); },
  );
  const taken = await handled.secondsUntil(() => number("state <> 'completed'"));
  report_result(await number("state = 'completed'"), taken);
}
process.exit(0);
