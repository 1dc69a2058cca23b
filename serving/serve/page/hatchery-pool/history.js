// What happened lately.

/** Most durations that one point counts, and most jobs whose end is waited for. */
const MOST_SAMPLES = 2_000;
const MOST_PENDING = 100_000;

/** Rates and latencies of the last `SPAN` seconds. Times are seconds since the pool started. */
class History {
    /** By the number of the step: the last count of ended jobs, with its time. */
    #counts = new Map();
    /** By the number of the step: durations from admission to end. */
    #times = new Map();
    #admitted = new Map();

    count(now, ended) {
        this.#counts.set(Math.floor(now / STEP), [now, ended]);
        const first = Math.floor((now - SPAN) / STEP) - 1;
        for (const steps of [this.#counts, this.#times]) {
            for (const step of steps.keys()) if (step < first) steps.delete(step);
        }
    }

    decided({ decision, job, at_seconds: at }) {
        if (decision === 'admitted') {
            if (this.#admitted.size >= MOST_PENDING) {
                this.#admitted.delete(this.#admitted.keys().next().value);
            }
            this.#admitted.set(job, at);
        } else if (decision === 'ended' && this.#admitted.has(job)) {
            const step = Math.floor(at / STEP);
            const entry = this.#times.get(step) ?? { times: [], shares: null };
            if (entry.times.length < MOST_SAMPLES) entry.times.push(at - this.#admitted.get(job));
            entry.shares = null;
            this.#times.set(step, entry);
            this.#admitted.delete(job);
        }
    }

    /** Returns points of jobs a second. */
    rates(now) {
        let before = null;
        const points = [];
        for (const [at, ended] of this.#counts.values()) {
            // What is counted over a shorter time says little.
            if (before && at - before[0] < STEP / 2) continue;
            if (before) points.push([now - at, (ended - before[1]) / (at - before[0])]);
            before = [at, ended];
        }
        return points.filter(([ago]) => ago <= SPAN);
    }

    /** Returns points of the median, the 95th and the 99th percentile. */
    latencies(now) {
        const lines = [[], [], []];
        for (const step of [...this.#times.keys()].sort((a, b) => a - b)) {
            const entry = this.#times.get(step);
            if (!entry.shares) {
                const times = entry.times.sort((a, b) => a - b);
                entry.shares = [0.5, 0.95, 0.99].map(
                    (share) => times[Math.ceil(share * times.length) - 1],
                );
            }
            const ago = now - (step + 1) * STEP;
            // The present step isn’t over.
            if (ago >= 0 && ago <= SPAN)
                entry.shares.forEach((time, line) => lines[line].push([ago, time]));
        }
        return lines;
    }
}

