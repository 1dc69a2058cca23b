// What a status means.

const PRIORITIES = ['high', 'normal', 'low'];
const STEPS = ['queue', 'resume', 'run', 'reset'];
const MOST_ERRORS = 10;
/** What to say of a last job that ended so. */
const FAILURES = {
    failed: 'The last program failed.',
    limited: 'A limit ended the last program.',
    sandbox_failed: 'The sandbox failed the last program.',
};

function doneOf(totals) {
    return (
        totals.succeeded + totals.failed + totals.limited + totals.cancelled + totals.sandbox_failed
    );
}

function usedOf(memory) {
    const { shared_bytes, slot_bytes, session_bytes, queued_bytes, in_flight_bytes } = memory;
    return shared_bytes + slot_bytes + session_bytes + queued_bytes + in_flight_bytes;
}

/** Returns a share as a width. */
function share(part, all) {
    return `${Math.min(100, (100 * part) / Math.max(1, all)).toFixed(1)}%`;
}

function waiting(status) {
    return status.queue_depth ?? status.queued ?? 0;
}

function depthsOf(tenant) {
    const depths = { all: 0 };
    for (const { priority, depth } of tenant.queued) {
        depths[priority] = depth;
        depths.all += depth;
    }
    return depths;
}

/** Returns 1, 2 or 5 times a power of ten that is not smaller. */
function nice(value) {
    const power = 10 ** Math.floor(Math.log10(value));
    return [1, 2, 5, 10]
        .map((factor) => factor * power)
        .find((candidate) => candidate >= value * 0.999);
}

/** Says why buttons are disabled. */
function whyNot(access, status) {
    if (access === 'anybody' && status)
        return 'To drain, reset, interrupt or retire from this page, start the server with --token-file.';
    if (access === 'tenant')
        return 'This token is a tenant’s: it shows own jobs and sessions. The whole pool is an administrator’s.';
    return '';
}

/** Returns the last errors of programs and of the sandbox, the latest first. */
function errorsOf(status) {
    const ofPrograms = status.last_program_errors.map((error) => ({
        ...error,
        kind: 'program',
        text: [error.exception, error.message].filter(Boolean).join(': '),
    }));
    const ofSandbox = status.last_errors.map((error) => ({
        ...error,
        kind: 'sandbox',
        text: error.message,
    }));
    const all = [...ofPrograms, ...ofSandbox].sort((a, b) => a.age_seconds - b.age_seconds);
    const at = (ago) => Math.round(status.uptime_seconds - ago);
    return all.slice(0, MOST_ERRORS).map((error) => ({ ...error, at: at(error.age_seconds) }));
}

/** Says where sessions are. */
function placesOf({ on_workers: onWorkers, suspended, compressed, on_disk: onDisk }) {
    const places = { 'on workers': onWorkers, 'in memory': suspended + compressed, 'on disk': onDisk };
    const taken = Object.entries(places).filter(([, sessions]) => sessions > 0);
    return taken.map(([place, sessions]) => `${count(sessions)} ${place}`).join(', ') || 'none';
}

/** Says where the state of a session is. */
function placeOf(place) {
    switch (place?.place) {
        case 'fresh':
            return 'nowhere yet';
        case 'on_worker':
            return `on worker ${place.worker}`;
        case 'suspended':
            return `in memory, ${bytes(place.bytes)}`;
        case 'compressed':
            return `compressed, ${bytes(place.bytes)}`;
        case 'on_disk':
            return `on disk, ${bytes(place.bytes)}`;
        case 'lost':
            return 'lost';
        default:
            return '–';
    }
}

