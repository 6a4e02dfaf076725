/** A clock that threads share, unlike that of performance.now: in milliseconds, and steady. */
export function clock(): number {
  return Number(process.hrtime.bigint()) / 1e6;
}
