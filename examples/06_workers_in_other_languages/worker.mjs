// A worker in thirty lines of JavaScript: claim, keep the lease, work, finish. Needs node 18 or later, and no packages.
// Usage: HOLDFAST=http://127.0.0.1:8484 [TOKEN=holdfast_…] [SECONDS_OF_WORK=5] node worker.mjs NAME
const [api, name] = [process.env.HOLDFAST ?? "http://127.0.0.1:8484", process.argv[2] ?? "javascript"];
const token = process.env.TOKEN ? { Authorization: `Bearer ${process.env.TOKEN}` } : {};
const sleep = (seconds) => new Promise((resolve) => setTimeout(resolve, seconds * 1000));

async function post(verb, body) {
  const headers = { "Content-Type": "application/json", ...token };
  const answer = await fetch(`${api}/v1/leases/${verb}`, { method: "POST", headers, body: JSON.stringify(body) });
  if (!answer.ok) throw new Error(`${verb}: ${await answer.text()}`); // a problem, which says what to do
  return answer.json();
}

async function run({ lease, job }) {
  const extending = setInterval(async () => {
    const { verdicts } = await post("extend", { worker_id: name, lease_seconds: 3, leases: [{ lease }] }).catch(() => ({}));
    if (verdicts?.[0].verdict === "lost") clearInterval(extending); // another worker has it: our finish will be refused
  }, 1000);
  console.log(`${name} greets ${job.kwargs.name}`);
  await sleep(Number(process.env.SECONDS_OF_WORK ?? 0)).finally(() => clearInterval(extending));
  const result = `Hello, ${job.kwargs.name}, from ${name}`;
  const { verdicts } = await post("finish", { leases: [{ lease, outcome: "complete", result }] });
  console.log(`${name}: ${verdicts[0].verdict} for ${job.kwargs.name}`);
}

for (;;) {
  const wanted = { queues: ["greetings"], tasks: ["greet"], worker_id: name, lease_seconds: 3, wait_seconds: 20 };
  const { leases } = await post("claim", wanted).catch(async () => (await sleep(1), { leases: [] }));
  await Promise.all(leases.map((claimed) => run(claimed).catch((error) => console.error(error.message))));
}
