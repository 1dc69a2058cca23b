// What pools on many machines do, behind one queue.

/** Most rows in the lists of a cluster. */
const MOST_LANES = 50;
const MOST_MACHINES = 200;

function lanesTable() {
    return new Table({
        label: 'Jobs in the queue of the cluster',
        kind: 'lanes',
        columns: [{ name: 'tenant' }, { name: 'priority' }, ...numbers(['waiting', 'claimed'])],
        none: 'No job has come yet.',
        key: ({ tenant, priority }) => JSON.stringify([tenant, priority]),
        texts: ({ tenant, priority, waiting, claimed }) => [
            tenant === null ? '–' : short(tenant, 60),
            priority,
            count(waiting),
            count(claimed),
        ],
    });
}

function machinesTable() {
    return new Table({
        label: 'Workers of the cluster',
        kind: 'machines',
        columns: [
            { name: 'worker' },
            { name: 'version' },
            ...numbers(['running', 'slots', 'done', 'given back']),
        ],
        none: 'No worker lives.',
        key: ({ name }) => name,
        texts: (worker) => [
            `${short(worker.name, 60)}${worker.is_draining ? ' (drains)' : ''}`,
            short(worker.version, 30),
            count(worker.running),
            count(worker.slots),
            count(worker.done),
            count(worker.given_back),
        ],
    });
}

/** The panels of a cluster, which are hidden while the server knows of none. */
class ClusterView {
    #lanes = lanesTable();
    #machines = machinesTable();
    #queue = panel('Cluster', { class: 'half', hidden: true }, this.#lanes.element);
    #workers = panel(
        'Workers of the cluster',
        { class: 'half', hidden: true },
        this.#machines.element,
    );
    elements = [this.#queue.element, this.#workers.element];

    /** `cluster` is its state, what is wrong with it as `problem`, or nothing. */
    show(cluster) {
        for (const element of this.elements) element.hidden = !cluster;
        if (!cluster) return;
        if (cluster.problem) {
            say(this.#queue.extra, cluster.problem);
            return;
        }
        const { pool, jobs, lanes, workers } = cluster;
        const sum = (name) => workers.reduce((sum, worker) => sum + worker[name], 0);
        const kept = `${counted(cluster.results, 'result')} and ${counted(cluster.dead_letters, 'dead letter')} kept`;
        say(this.#queue.extra, `pool ${short(pool, 40)}: ${counted(jobs, 'job')}, ${kept}`);
        say(this.#workers.extra, `${count(sum('running'))} of ${count(sum('slots'))} slots run`);
        const longest = [...lanes].sort((a, b) => b.waiting - a.waiting || b.claimed - a.claimed);
        this.#lanes.show(longest.slice(0, MOST_LANES));
        this.#machines.show(workers.slice(0, MOST_MACHINES));
    }
}

