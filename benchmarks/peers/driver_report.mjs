// What the drivers in JavaScript share: their arguments, and how they report the result.

export const [what, count, url] = [process.argv[2], Number(process.argv[3]), process.env.HOLDFAST_BENCH_TARGET];

/** Report how many jobs the database says were done, and in how many seconds. */
export function report_result(done, seconds) {
  console.log(JSON.stringify({ done, seconds }));
}

export function now() {
  return performance.now() / 1000;
}

/** Counts handlers. The time runs from the first of them, so a library's start-up is not in it. */
export class Handled {
  constructor(wanted) {
    this.count = 0;
    this.wanted = wanted;
    this.all = new Promise((resolve) => { this.resolve = resolve; });
  }

  add(number = 1) {
    if (this.count === 0) this.began = now();
    this.count += number;
    if (this.count >= this.wanted) this.resolve();
  }

  /** Wait for the last handler, and then until the database has nothing left to do. */
  async secondsUntil(left) {
    await this.all;
    let looked = now();
    while ((await left()) > 0) {
      await new Promise((resolve) => setTimeout(resolve, 5));
      looked = now();
    }
    return looked - this.began; // looking takes time, which is not the library's
  }
}
