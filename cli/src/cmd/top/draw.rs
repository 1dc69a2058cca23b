//! Draws a screen as lines of text, as a pure function of its state and size.

use std::fmt::Display;
use std::iter;

use console::{Alignment, Style, measure_text_width, pad_str, strip_ansi_codes, truncate_str};
use serde_json::Value;

use super::screen::{Screen, count, depth, list, rate, real, share, text, used_bytes, whole};
use crate::terminal::{size, time};

/// Heights of the header and the footer.
const HEADER: usize = 2;
const FOOTER: usize = 1;
/// Height and width of the frame around a panel.
const FRAME: usize = 2;
/// Height of the latencies, with their heading.
const LATENCIES: usize = 5;
/// The width inside a panel that two columns of labelled figures need, and their usual width.
const TWO_COLUMNS: usize = 38;
const COLUMN: usize = 22;
/// Workers that are shown before errors get room.
const FEW_WORKERS: usize = 3;
/// The columns of workers, and which of them is left out if there is but one build.
const PYTHON: usize = 1;
const WORKER_COLUMNS: [Column; 10] = [
    ("worker", 6, 0),
    ("python", 10, 4),
    ("state", 11, 1),
    ("for", 8, 2),
    ("job", 8, 5),
    ("session", 8, 7),
    ("age", 8, 8),
    ("memory", 9, 3),
    ("served", 7, 6),
    ("request, error", 14, 9),
];
/// The columns of trees of forks.
const TREE_COLUMNS: [Column; 4] =
    [("forks of", 16, 0), ("forks", 6, 1), ("depth", 5, 2), ("by depth", 14, 3)];
/// The most tenants, errors and trees to show: the busiest, the latest and the largest.
const MOST_TENANTS: usize = 8;
const MOST_ERRORS: usize = 4;
const MOST_TREES: usize = 4;

/// The priorities, each with its part of a bar.
const PRIORITIES: [(&str, &str, Style); 3] = [
    ("high", "█", Style::new().red()),
    ("normal", "▓", Style::new().yellow()),
    ("low", "░", Style::new().blue()),
];

const PLAIN: Style = Style::new();
const BOLD: Style = Style::new().bold();
const DIM: Style = Style::new().dim();
const GOOD: Style = Style::new().green();
const ALARM: Style = Style::new().red();

/// Draws the whole screen as plain text, as high as necessary.
pub(super) fn as_text(screen: &Screen, columns: usize) -> String {
    let workers = list(&screen.view["workers"]).len().max(FEW_WORKERS);
    let rows = heights(&screen.view, columns).iter().sum::<usize>();
    plain(&draw(screen, columns, HEADER + rows + FRAME + 1 + workers + FOOTER))
}

/// Returns the text of lines, without styles and trailing spaces.
fn plain(lines: &[String]) -> String {
    lines.iter().map(|line| format!("{}\n", strip_ansi_codes(line).trim_end())).collect()
}

/// Returns the heights of the upper panels, the middle ones, trees, sandbox errors and program errors.
fn heights(view: &Value, columns: usize) -> [usize; 5] {
    let tenants = list(&view["tenants"]).len().min(MOST_TENANTS);
    let framed = |errors: &Value| match list(errors).len().min(MOST_ERRORS) {
        0 => 0,
        errors => FRAME + errors,
    };
    [
        FRAME + LATENCIES.max(tenants + 2),
        // The bar and six figures.
        FRAME + 1 + 6 / figures_a_line((columns / 2).saturating_sub(FRAME)),
        match list(&view["trees"]).len().min(MOST_TREES) {
            0 => 0,
            trees => FRAME + 1 + trees,
        },
        framed(&view["last_errors"]),
        framed(&view["last_program_errors"]),
    ]
}

/// Draws the screen as so many rows, each exactly so wide. They have styles if standard output may
/// have them, and no other control characters.
pub(super) fn draw(screen: &Screen, columns: usize, rows: usize) -> Vec<String> {
    let view = &screen.view;
    let [upper, middle, trees, errors, raised] = heights(view, columns);
    let above = HEADER + upper + middle;
    let least = above + FRAME + 1 + FEW_WORKERS + FOOTER;
    let trees = if least + trees > rows { 0 } else { trees };
    let above = above + trees;
    let least = above + FRAME + 1 + FEW_WORKERS + FOOTER;
    let errors = if least + errors > rows { 0 } else { errors };
    let raised = if least + errors + raised > rows { 0 } else { raised };
    let workers = rows.saturating_sub(above + errors + raised + FOOTER).max(FRAME + 1);
    let (left, right) = (columns / 2, columns - columns / 2);
    let mut lines = draw_header(view, columns);
    let upper = [draw_queue(view, left, upper), draw_latencies(view, right, upper)];
    let places = &view["places"];
    let middle = [draw_memory(&view["memory"], left, middle), draw_sessions(places, right, middle)];
    for [left, right] in [upper, middle] {
        lines.extend(left.into_iter().zip(right).map(|(left, right)| left + &right));
    }
    lines.extend(draw_trees(&view["trees"], columns, trees));
    lines.extend(draw_workers(screen, columns, workers));
    lines.extend(draw_errors(view, columns, errors));
    lines.extend(draw_program_errors(view, columns, raised));
    lines.truncate(rows.saturating_sub(FOOTER));
    lines.push(footer(screen));
    lines.iter().take(rows).map(|line| fit(line, columns)).collect()
}

fn draw_header(view: &Value, columns: usize) -> Vec<String> {
    let figures = [
        ("up", time(real(&view["uptime_seconds"]))),
        ("jobs/s", rate(real(&view["jobs_per_second"]))),
        ("running", count(whole(&view["running"]))),
        ("waiting", count(whole(&view["queue_depth"]))),
    ];
    let mut first = format!("{}{}  ", styled(&BOLD, "Hatchery "), one_line(&view["phase"]));
    let room = columns.saturating_sub(measure_text_width(&first));
    first += &line_of(figures, room);
    let outcomes =
        ["succeeded", "failed", "limited", "cancelled", "sandbox_failed", "refused", "retried"];
    let second = outcomes.map(|name| (name.replace('_', " "), count(whole(&view["totals"][name]))));
    vec![first, line_of(second, columns)]
}

/// Formats figures with their labels, as many as fit: half a figure would be another one.
fn line_of(figures: impl IntoIterator<Item = (impl Display, String)>, room: usize) -> String {
    let mut left = room;
    let labelled = figures.into_iter().map(|(name, figure)| labelled(&name, &figure));
    let fits = |figure: &String| {
        let width = measure_text_width(figure);
        let fits = width <= left;
        left = left.saturating_sub(width + 2);
        fits
    };
    labelled.take_while(fits).map(|figure| figure + "  ").collect()
}

fn labelled(name: &dyn Display, figure: &str) -> String {
    format!("{}{figure}", styled(&DIM, format_args!("{name} ")))
}

/// A column of a table: its heading, the width that it needs, and its rank. Where not all fit, the
/// columns of the greatest ranks are left out.
type Column = (&'static str, usize, u8);

/// Draws a table with those of its columns that fit, one space apart. The last one takes the rest.
fn table(columns: &[Column], rows: impl Iterator<Item = Vec<String>>, room: usize) -> Vec<String> {
    let fits = |(_, _, rank): &&Column| {
        let kept = columns.iter().filter(|(_, _, other)| other <= rank);
        kept.map(|(_, width, _)| width + 1).sum::<usize>() <= room + 1
    };
    let line = |cells: Vec<String>| {
        let shown = cells.iter().zip(columns).filter(|(_, column)| fits(column));
        let shown: Vec<_> = shown.map(|(cell, (_, width, _))| (cell, *width)).collect();
        let Some((last, others)) = shown.split_last() else { return String::new() };
        let others = others.iter().map(|(cell, width)| fit(cell, *width) + " ");
        others.chain([last.0.clone()]).collect()
    };
    let heading = line(columns.iter().map(|(name, ..)| (*name).to_owned()).collect());
    iter::once(styled(&DIM, heading)).chain(rows.map(line)).collect()
}

fn draw_queue(view: &Value, columns: usize, rows: usize) -> Vec<String> {
    let mut title = styled(&BOLD, " Queue ");
    for (name, glyph, style) in &PRIORITIES {
        title += &format!("{} {name} ", styled(style, glyph));
    }
    let width = columns.saturating_sub(FRAME);
    let figures = [
        ("waiting", count(whole(&view["queue_depth"]))),
        ("oldest", view["oldest_wait_seconds"].as_f64().map_or("-".to_owned(), time)),
        ("size", size(whole(&view["queued_bytes"]))),
    ];
    let mut tenants: Vec<&Value> = list(&view["tenants"]).iter().collect();
    tenants.sort_by_key(|tenant| std::cmp::Reverse(waiting(tenant)));
    tenants.truncate(MOST_TENANTS);
    let deepest = tenants.first().map_or(0, |tenant| waiting(tenant));
    // The name takes what the others leave, up to a width, and a bar the rest.
    let name = width.saturating_sub(6 + 7 + 7 + 4 + 4).clamp(8, 16);
    let parts =
        [("tenant", name, 0), ("weight", 6, 3), ("running", 7, 2), ("waiting", 7, 1), ("", 4, 4)];
    // The columns are one space apart.
    let room = width.saturating_sub(16 + 6 + 7 + 7 + 4);
    let tenants = tenants.into_iter().map(|tenant| {
        vec![
            one_line(&tenant["tenant"]),
            whole(&tenant["weight"]).to_string(),
            count(whole(&tenant["running"])),
            count(waiting(tenant)),
            bar(tenant, deepest, room),
        ]
    });
    let lines = iter::once(line_of(figures, width)).chain(table(&parts, tenants, width));
    framed(&title, lines, columns, rows)
}

fn waiting(tenant: &Value) -> u64 {
    let depths = PRIORITIES.iter().map(|(priority, ..)| depth(tenant, priority));
    depths.fold(0, u64::saturating_add)
}

/// Draws a tenant's waiting jobs by priority; `room` is the length for `deepest` jobs.
fn bar(tenant: &Value, deepest: u64, room: usize) -> String {
    let parts = PRIORITIES.iter().map(|(priority, glyph, style)| {
        let jobs = depth(tenant, priority);
        let length = (share(jobs, deepest) * room as f64).round() as usize;
        let length = if jobs == 0 { 0 } else { length.max(1) };
        styled(style, glyph.repeat(length))
    });
    parts.collect()
}

fn draw_latencies(view: &Value, columns: usize, rows: usize) -> Vec<String> {
    const COLUMNS: [Column; 6] = [
        ("step", 6, 0),
        ("jobs", 6, 5),
        ("p50", 7, 1),
        ("p95", 7, 2),
        ("p99", 7, 3),
        ("max", 7, 4),
    ];
    let steps = ["queue", "resume", "run", "reset"].into_iter().map(|step| {
        let times = &view["latency"][step];
        let jobs = whole(&times["count"]);
        let told = |name| if jobs == 0 { "-".to_owned() } else { time(real(&times[name])) };
        let times = ["p50_seconds", "p95_seconds", "p99_seconds", "max_seconds"].map(told);
        [step.to_owned(), count(jobs)].into_iter().chain(times).collect()
    });
    let lines = table(&COLUMNS, steps, columns.saturating_sub(FRAME));
    framed(&styled(&BOLD, " Latency "), lines, columns, rows)
}

fn draw_memory(memory: &Value, columns: usize, rows: usize) -> Vec<String> {
    let width = columns.saturating_sub(FRAME);
    let (used, limit) = (used_bytes(memory), whole(&memory["limit_bytes"]));
    let share = share(used, limit);
    let (bytes_used, percent) = (size(used), format!("{:.0}%", share * 100.0));
    let forms = [
        format!(" {bytes_used} of {}, {percent}", size(limit)),
        format!(" {bytes_used}, {percent}"),
    ];
    let figures = forms.into_iter().find(|form| form.chars().count() <= width).unwrap_or_default();
    let room = width - figures.chars().count();
    let full = (share * room as f64).round() as usize;
    let style = if share > 0.9 { ALARM } else { GOOD };
    let gauge = styled(&style, "█".repeat(full)) + &styled(&DIM, "░".repeat(room - full));
    let parts = [
        ("shared", "shared_bytes"),
        ("slots", "slot_bytes"),
        ("sessions", "session_bytes"),
        ("waiting", "queued_bytes"),
        ("running", "in_flight_bytes"),
        ("on disk", "disk_bytes"),
    ];
    let parts = parts.chunks(figures_a_line(width)).map(|some| {
        let figures = some.iter().map(|(name, part)| (*name, size(whole(&memory[*part]))));
        aligned(figures, width)
    });
    let lines = iter::once(gauge + &figures).chain(parts);
    framed(&styled(&BOLD, " Memory "), lines, columns, rows)
}

fn draw_sessions(places: &Value, columns: usize, rows: usize) -> Vec<String> {
    let width = columns.saturating_sub(FRAME);
    let all = ["on_workers", "suspended", "compressed", "on_disk", "fresh", "lost"]
        .map(|place| (place.replace('_', " "), whole(&places[place])));
    let open = all.iter().fold(0, |open: u64, (_, sessions)| open.saturating_add(*sessions));
    let parts = all.chunks(figures_a_line(width)).map(|some| {
        let figures = some.iter().map(|(name, sessions)| (name.as_str(), count(*sessions)));
        aligned(figures, width)
    });
    let lines = iter::once(aligned([("open", count(open))].into_iter(), width)).chain(parts);
    framed(&styled(&BOLD, " Sessions "), lines, columns, rows)
}

/// Draws trees of forks, unless there are none or no room for them.
fn draw_trees(trees: &Value, columns: usize, rows: usize) -> Vec<String> {
    if rows == 0 {
        return Vec::new();
    }
    // What the other columns leave; each is followed by a space.
    let room = columns.saturating_sub(FRAME + 16 + 6 + 5 + 3);
    let trees = list(trees).iter().take(MOST_TREES).map(|tree| {
        let figure = |name| count(whole(&tree[name]));
        vec![one_line(&tree["root"]), figure("forks"), figure("depth"), levels(tree, room)]
    });
    let lines = table(&TREE_COLUMNS, trees, columns.saturating_sub(FRAME));
    framed(&styled(&BOLD, " Forks "), lines, columns, rows)
}

/// Formats how many forks of a tree have each depth, as far as there is room.
fn levels(tree: &Value, room: usize) -> String {
    let mut text = String::new();
    let levels = list(&tree["levels"]);
    for level in levels {
        let separator = if text.is_empty() { "" } else { " › " };
        let next = format!("{separator}{}", count(whole(level)));
        if text.chars().count() + next.chars().count() + 4 > room {
            return text + " › …";
        }
        text.push_str(&next);
    }
    if whole(&tree["depth"]) > levels.len() as u64 { text + " › …" } else { text }
}

/// Returns how many labelled figures fit side by side into a panel of this width.
fn figures_a_line(width: usize) -> usize {
    if width < TWO_COLUMNS { 1 } else { 2 }
}

/// Formats labelled figures in columns that align from line to line.
fn aligned<'a>(figures: impl Iterator<Item = (&'a str, String)>, width: usize) -> String {
    let column = COLUMN.min(width / figures_a_line(width));
    let cells = figures.map(|(name, figure)| {
        let room = column.saturating_sub(name.chars().count() + 1);
        labelled(&name, &format!("{figure:room$}"))
    });
    cells.collect()
}

fn draw_workers(screen: &Screen, columns: usize, rows: usize) -> Vec<String> {
    let workers = list(&screen.view["workers"]);
    let room = rows.saturating_sub(FRAME + 1);
    // Scrolling stops when the last worker reaches the bottom.
    let first = screen.first_worker.min(workers.len().saturating_sub(room));
    let last = workers.len().min(first + room);
    let which = if room > 0 && workers.len() > room {
        format!("{}–{} of {} ", first + 1, last, workers.len())
    } else {
        format!("{} ", workers.len())
    };
    let title = styled(&BOLD, " Workers ") + &which + &isolation(&screen.view["isolation"]);
    let (mut parts, has_pythons) =
        (WORKER_COLUMNS.to_vec(), list(&screen.view["pythons"]).len() > 1);
    if !has_pythons {
        parts.remove(PYTHON);
    }
    let workers = workers[first..last].iter().map(|worker| {
        let mut cells = worker_cells(worker);
        if !has_pythons {
            cells.remove(PYTHON);
        }
        cells
    });
    framed(&title, table(&parts, workers, columns.saturating_sub(FRAME)), columns, rows)
}

/// Says that workers are in processes, and how many layers of their wall the system lacks.
fn isolation(isolation: &Value) -> String {
    let is_in_processes = text(&isolation["workers_in"]) == "processes";
    let missing = match list(&isolation["missing"]).len() {
        _ if !is_in_processes => return String::new(),
        0 => return "in processes ".to_owned(),
        1 => "1 layer missing".to_owned(),
        several => format!("{several} layers missing"),
    };
    format!("in processes, {} ", styled(&ALARM, missing))
}

/// Returns what the kernel counts for a worker's process, if it has one; else what the engine does.
fn memory(worker: &Value) -> u64 {
    worker["process_private_bytes"].as_u64().unwrap_or_else(|| whole(&worker["memory_bytes"]))
}

/// Returns what there is to say of a worker, column by column.
fn worker_cells(worker: &Value) -> Vec<String> {
    let number = |name| worker[name].as_u64().map_or("-".to_owned(), |number| number.to_string());
    let style = match text(&worker["activity"]) {
        "running" => GOOD,
        "backing_off" | "given_up" | "stuck" => ALARM,
        _ => PLAIN,
    };
    let (request, error) = (&worker["network"]["under_way"], &worker["last_error"]);
    let told = match (request.is_object(), error.is_null()) {
        (true, _) => {
            let since = time(real(&request["seconds"]));
            format!("{since}: {} {}", one_line(&request["method"]), one_line(&request["url"]))
        }
        (false, true) => "-".to_owned(),
        (false, false) => one_line(error),
    };
    vec![
        number("worker"),
        one_line(&worker["python"]),
        styled(&style, one_line(&worker["activity"]).replace('_', " ")),
        time(real(&worker["since_seconds"])),
        number("job"),
        number("session"),
        time(real(&worker["age_seconds"])),
        size(memory(worker)),
        count(whole(&worker["jobs_served"])),
        told,
    ]
}

fn draw_errors(view: &Value, columns: usize, rows: usize) -> Vec<String> {
    draw_list(" Last errors ", &view["last_errors"], columns, rows, |error| {
        let named = |name, mark| {
            error[name].as_u64().map_or_else(String::new, |number| format!("{mark}{number}: "))
        };
        let (worker, job) = (named("worker", "worker-"), named("job", "job "));
        format!("{worker}{job}{}", one_line(&error["message"]))
    })
}

fn draw_program_errors(view: &Value, columns: usize, rows: usize) -> Vec<String> {
    let errors = &view["last_program_errors"];
    draw_list(" Last errors of programs ", errors, columns, rows, |error| {
        let [tenant, exception, message] =
            ["tenant", "exception", "message"].map(|name| one_line(&error[name]));
        format!("{tenant}: job {}: {exception}: {message}", whole(&error["job"]))
    })
}

/// Draws errors, each with its age, unless there is no room for them.
fn draw_list(
    title: &str,
    errors: &Value,
    columns: usize,
    rows: usize,
    describe: impl Fn(&Value) -> String,
) -> Vec<String> {
    if rows == 0 {
        return Vec::new();
    }
    let lines = list(errors).iter().take(MOST_ERRORS).map(|error| {
        let age = format!("{} ago  ", time(real(&error["age_seconds"])));
        styled(&DIM, age) + &describe(error)
    });
    framed(&styled(&BOLD, title), lines, columns, rows)
}

fn footer(screen: &Screen) -> String {
    let problem = screen.problem.as_ref();
    let problem = problem.map(|problem| styled(&ALARM, without_controls(problem)) + "  ");
    let paused = screen.is_paused.then(|| styled(&BOLD, "paused  "));
    let keys = format!("{}  q quit  p pause  ↑↓ scroll", screen.address);
    problem.unwrap_or_default() + &paused.unwrap_or_default() + &styled(&DIM, keys)
}

/// Draws a frame of this size around lines.
fn framed(
    title: &str,
    lines: impl IntoIterator<Item = String>,
    columns: usize,
    rows: usize,
) -> Vec<String> {
    let width = columns.saturating_sub(FRAME);
    let title = truncate_str(title, width, "");
    let rest = "─".repeat(width - measure_text_width(&title));
    let top = styled(&DIM, "┌") + &title + &styled(&DIM, rest + "┐");
    let side = styled(&DIM, "│");
    let lines = lines.into_iter().chain(iter::repeat(String::new()));
    let lines = lines.map(|line| format!("{side}{}{side}", fit(&line, width)));
    let bottom = styled(&DIM, format!("└{}┘", "─".repeat(width)));
    iter::once(top).chain(lines.take(rows.saturating_sub(FRAME))).chain([bottom]).collect()
}

/// Cuts or fills a line to a width.
fn fit(line: &str, width: usize) -> String {
    // Of a wide letter there may be no half.
    pad_str(&truncate_str(line, width, ""), width, Alignment::Left, None).into_owned()
}

fn styled(style: &Style, text: impl Display) -> String {
    style.apply_to(text).to_string()
}

/// Returns a text of a status on one line.
fn one_line(value: &Value) -> String {
    without_controls(text(value))
}

/// Replaces control characters in a text from elsewhere, which could move the cursor.
fn without_controls(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Returns the status of a busy pool, as `/v1/status` sends it.
    fn busy() -> Value {
        serde_json::from_str(include_str!("busy.json")).unwrap()
    }

    fn worker(worker: u64) -> Value {
        json!({ "worker": worker, "activity": "ready" })
    }

    fn screen(view: Value) -> Screen {
        let mut screen = Screen::new("127.0.0.1:9184");
        screen.view = view;
        screen
    }

    fn drawn(screen: &Screen, columns: usize, rows: usize) -> String {
        let lines = draw(screen, columns, rows);
        let is_whole = |line: &String| measure_text_width(line) == columns;
        assert!(lines.iter().all(is_whole), "{columns} columns: {lines:#?}");
        plain(&lines)
    }

    /// `busy.txt` is the drawing of `busy.json`; a change of the one shows in the other.
    #[test]
    fn a_busy_pool_is_drawn_as_expected() {
        let screen = screen(busy());
        let text = as_text(&screen, 100);
        assert!(text == include_str!("busy.txt"), "busy.txt differs from\n{text}");
        let lines = text.lines().count();
        assert_eq!(drawn(&screen, 100, lines), text);
    }

    #[test]
    fn any_size_can_be_drawn() {
        let screen = screen(busy());
        for (columns, lines) in [(1, 1), (20, 5), (40, 12), (80, 24), (200, 60), (300, 3)] {
            let text = drawn(&screen, columns, lines);
            assert_eq!(text.lines().count(), lines);
        }
        assert!(drawn(&screen, 80, 24).contains("backing off"));
    }

    /// Half a figure is another figure, and one without its unit says nothing.
    #[test]
    fn figures_are_whole_or_left_out_at_any_width() {
        let screen = screen(busy());
        for columns in 40..100 {
            let text = as_text(&screen, columns);
            // What workers failed at is text, which may be cut.
            let panels = text.lines().take_while(|line| !line.contains("Workers"));
            for part in panels.flat_map(|line| line.split('│')) {
                let is_cut = [" M", " Mi", " K", " Ki", " G", " Gi", " m", " µ", "."]
                    .iter()
                    .any(|unit| part.trim_end().ends_with(unit));
                assert!(!is_cut, "{columns}: {part}\n{text}");
            }
        }
        let narrow = as_text(&screen, 60);
        for figure in ["12.1 ms", "840 ms", "210.0 MiB", "3.7 MiB", "1.28 s", "256.0 MiB"] {
            assert!(narrow.contains(figure), "{figure}: {narrow}");
        }
        assert!(as_text(&screen, 80).contains("10.3 ms"));
    }

    #[test]
    fn trees_of_forks_are_counted_by_depth_at_any_width() {
        let mut view = busy();
        view["trees"] = json!([
            { "root": "puzzle\u{1b}[2J", "forks": 51_234, "parents": 1_235, "depth": 12,
              "levels": [50_000, 1_000, 200, 30, 2, 1, 1, 0, 0, 0] },
            { "root": "report", "forks": 2, "parents": 1, "depth": 1, "levels": [2] },
        ]);
        let screen = screen(view);
        for (columns, expected) in [
            (
                120,
                "puzzle [2J       51.2k  12    50.0k › 1000 › 200 › 30 › 2 › 1 › 1 › 0 › 0 › 0 › …",
            ),
            (60, "puzzle [2J       51.2k  12    50.0k › 1000 › 200 › 30 › …"),
        ] {
            let text = as_text(&screen, columns);
            assert!(text.contains(expected), "{text}");
            assert!(text.lines().all(|line| line.chars().count() <= columns));
        }
        // Workers come first where there is little room.
        assert!(!drawn(&screen, 80, 24).contains("Forks"));
        assert!(drawn(&screen, 80, 24).contains("backing off"));
        assert!(!as_text(&self::screen(busy()), 100).contains("Forks"));
    }

    #[test]
    fn workers_without_room_are_only_counted() {
        let mut screen = screen(json!({ "phase": "open" }));
        screen.view["workers"] = (1..=3).map(worker).collect();
        for lines in 1..=40 {
            let text = drawn(&screen, 80, lines);
            assert!(!text.contains("1–0"), "{text}");
        }
        assert!((1..20).any(|lines| drawn(&screen, 80, lines).contains("Workers 3")));
    }

    #[test]
    fn workers_show_their_build_if_there_are_several() {
        let mut screen = screen(busy());
        assert!(!as_text(&screen, 100).contains("python"));
        screen.view["pythons"] = json!(["default", "3.12"]);
        screen.view["workers"][1]["python"] = "3.12".into();
        let text = as_text(&screen, 100);
        let line = |part: &str| text.lines().find(|line| line.contains(part)).unwrap().to_owned();
        assert!(line("python").contains("worker python     state"), "{text}");
        assert!(line("1843").contains("2      3.12       running"), "{text}");
    }

    #[test]
    fn an_empty_pool_has_no_figures_to_show() {
        let mut screen = screen(json!({ "phase": "open" }));
        screen.problem = Some("the pool is starting".to_owned());
        let text = as_text(&screen, 100);
        assert!(text.contains("the pool is starting"), "{text}");
        assert!(!text.contains("NaN") && !text.contains("Last errors"), "{text}");
    }

    #[test]
    fn workers_scroll_and_the_last_stays_at_the_end() {
        let mut screen = screen(json!({ "phase": "open" }));
        screen.view["workers"] = (1..=30).map(worker).collect();
        assert!(drawn(&screen, 100, 26).contains("1–7 of 30"), "{}", drawn(&screen, 100, 26));
        screen.scroll(3);
        assert!(drawn(&screen, 100, 26).contains("4–10 of 30"));
        screen.scroll(isize::MAX);
        assert!(drawn(&screen, 100, 26).contains("24–30 of 30"));
        screen.scroll(isize::MIN);
        assert_eq!(screen.first_worker, 0);
    }

    /// Messages of failures may contain what a program wrote.
    #[test]
    fn nothing_that_is_shown_moves_the_cursor() {
        let mut view = busy();
        view["last_errors"][0]["message"] = "a\x1b[2J\nb\u{9b}1m".into();
        view["workers"][0]["last_error"] = "\x07\r".into();
        view["tenants"][0]["tenant"] = "\x1b]0;title\x07 in 漢字 and 漢字漢字".into();
        for columns in 60..80 {
            drawn(&screen(view.clone()), columns, 40);
        }
        let text = as_text(&screen(view), 100);
        assert!(text.chars().all(|letter| letter == '\n' || !letter.is_control()), "{text:?}");
    }
}
