// graphile-worker: a local queue of 2,000, completions in batches, 24 jobs at once; many jobs by `addJobs`.
// A job that is done is deleted, so what is done is what is no longer there.
import graphile from "graphile-worker";
import pg from "pg";
import { Handled, count, now, report_result, url, what } from "./driver_report.mjs";

const { Logger, makeWorkerUtils, run, runMigrations } = graphile;
const logger = new Logger(() => () => {});
const pool = new pg.Pool({ connectionString: url, max: 10 });
const number = async () =>
  Number((await pool.query("select count(*) as number from graphile_worker._private_jobs")).rows[0].number);

await runMigrations({ pgPool: pool, logger });
const utils = await makeWorkerUtils({ pgPool: pool, logger });
const began = now();
if (what === "one") {
  for (let n = 0; n < count; n += 1) await utils.addJob("nothing", { n });
} else {
  await utils.addJobs(Array.from({ length: count }, (_, n) => ({ identifier: "nothing", payload: { n } })));
}
const seconds = now() - began;
if (what !== "drain") {
  report_result(await number(), seconds);
} else {
  const handled = new Handled(count);
  const runner = await run({
    pgPool: pool,
    logger,
    noHandleSignals: true,
    preset: {
      worker: {
        concurrentJobs: 24,
        pollInterval: 2000,
        localQueue: { size: 2000 },
        completeJobBatchDelay: 0,
        failJobBatchDelay: 0,
      },
    },
    taskList: { nothing: () => { handled.add(); } },
  });
  const taken = await handled.secondsUntil(number);
  report_result(count - (await number()), taken);
  await runner.stop();
}
await utils.release();
await pool.end();
process.exit(0);
