//! Draws a screen, as a pure function of its state and size.

use std::fmt::Display;

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Paragraph, Row, Table, Widget};
use serde_json::Value;

use super::screen::{Screen, count, depth, list, rate, real, share, text, used_bytes, whole};
use crate::terminal::{size, time};

/// Heights of the header and the footer.
const HEADER: u16 = 2;
const FOOTER: u16 = 1;
/// Height of the frame around a panel.
const FRAME: u16 = 2;
/// Height of the latencies, with their heading.
const LATENCIES: u16 = 5;
/// The width inside a panel that two columns of labelled figures need, and their usual width.
const TWO_COLUMNS: u16 = 38;
const COLUMN: usize = 22;
/// Workers that are shown before errors get room.
const FEW_WORKERS: u16 = 3;
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
const PRIORITIES: [(&str, &str, Color); 3] =
    [("high", "█", Color::Red), ("normal", "▓", Color::Yellow), ("low", "░", Color::Blue)];

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
const DIM: Style = Style::new().add_modifier(Modifier::DIM);
const ALARM: Style = Style::new().fg(Color::Red);

/// Draws the whole screen as text, as high as necessary.
pub(super) fn as_text(screen: &Screen, columns: u16) -> String {
    let [upper, middle, trees, errors, raised] = heights(&screen.view, columns);
    let workers = u16::try_from(list(&screen.view["workers"]).len()).unwrap_or(u16::MAX / 2);
    let workers = FRAME + 1 + workers.max(FEW_WORKERS);
    let lines = [HEADER, upper, middle, trees, workers, errors, raised, FOOTER];
    let lines = lines.into_iter().fold(0, u16::saturating_add);
    let mut buffer = Buffer::empty(Rect::new(0, 0, columns, lines));
    draw(screen, *buffer.area(), &mut buffer);
    plain(&buffer)
}

/// Returns the text of a buffer, without trailing spaces.
fn plain(buffer: &Buffer) -> String {
    let area = buffer.area();
    let line = |y| (0..area.width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    (0..area.height).map(|y| format!("{}\n", line(y).trim_end())).collect()
}

/// Returns the heights of the upper panels, the middle ones, trees, sandbox errors and program errors.
fn heights(view: &Value, columns: u16) -> [u16; 5] {
    let tenants = list(&view["tenants"]).len().min(MOST_TENANTS) as u16;
    let framed = |errors: &Value| match list(errors).len().min(MOST_ERRORS) as u16 {
        0 => 0,
        errors => FRAME + errors,
    };
    [
        FRAME + LATENCIES.max(tenants + 2),
        // The bar and six figures.
        FRAME + 1 + 6 / figures_a_line((columns / 2).saturating_sub(FRAME)) as u16,
        match list(&view["trees"]).len().min(MOST_TREES) as u16 {
            0 => 0,
            trees => FRAME + 1 + trees,
        },
        framed(&view["last_errors"]),
        framed(&view["last_program_errors"]),
    ]
}

pub(super) fn draw(screen: &Screen, area: Rect, buffer: &mut Buffer) {
    let view = &screen.view;
    let [upper, middle, trees, errors, raised] = heights(view, area.width);
    let rest = HEADER + upper + middle + FRAME + 1 + FEW_WORKERS + FOOTER;
    let trees = if rest + trees > area.height { 0 } else { trees };
    let rest = rest + trees;
    let errors = if rest + errors > area.height { 0 } else { errors };
    let raised = if rest + errors + raised > area.height { 0 } else { raised };
    let parts = Layout::vertical([
        Constraint::Length(HEADER),
        Constraint::Length(upper),
        Constraint::Length(middle),
        Constraint::Length(trees),
        Constraint::Min(FRAME + 1),
        Constraint::Length(errors),
        Constraint::Length(raised),
        Constraint::Length(FOOTER),
    ]);
    let [header, upper, middle, trees, workers, errors, raised, footer] = parts.areas(area);
    let halves = Layout::horizontal([Constraint::Percentage(50), Constraint::Percentage(50)]);
    draw_header(view, header, buffer);
    let [left, right] = halves.areas(upper);
    draw_queue(view, left, buffer);
    draw_latencies(view, right, buffer);
    let [left, right] = halves.areas(middle);
    draw_memory(&view["memory"], left, buffer);
    draw_sessions(&view["places"], right, buffer);
    draw_trees(&view["trees"], trees, buffer);
    draw_workers(screen, workers, buffer);
    draw_errors(view, errors, buffer);
    draw_program_errors(view, raised, buffer);
    draw_footer(screen, footer, buffer);
}

fn draw_header(view: &Value, area: Rect, buffer: &mut Buffer) {
    let figures = [
        ("up", time(real(&view["uptime_seconds"]))),
        ("jobs/s", rate(real(&view["jobs_per_second"]))),
        ("running", count(whole(&view["running"]))),
        ("waiting", count(whole(&view["queue_depth"]))),
    ];
    let phase = format!("{}  ", one_line(&view["phase"]));
    let mut first = Line::from(vec![Span::styled("Hatchery ", BOLD), Span::raw(phase)]);
    let room = area.width.saturating_sub(first.width() as u16);
    first.extend(line_of(figures, room));
    let outcomes =
        ["succeeded", "failed", "limited", "cancelled", "sandbox_failed", "refused", "retried"];
    let second = outcomes.map(|name| (name.replace('_', " "), count(whole(&view["totals"][name]))));
    Paragraph::new(vec![first, line_of(second, area.width)]).render(area, buffer);
}

/// Formats figures with their labels, as many as fit: half a figure would be another one.
fn line_of(figures: impl IntoIterator<Item = (impl Display, String)>, room: u16) -> Line<'static> {
    let mut left = usize::from(room);
    let fits = |[label, figure]: &[Span<'static>; 2]| {
        let width = label.width() + figure.width();
        let fits = width <= left;
        left = left.saturating_sub(width + 2);
        fits
    };
    let labelled = figures
        .into_iter()
        .map(|(name, figure)| [Span::styled(format!("{name} "), DIM), Span::raw(figure)]);
    let shown = labelled.take_while(fits);
    Line::from_iter(shown.flat_map(|[label, figure]| [label, figure, Span::raw("  ")]))
}

/// A column of a table: its heading, the width that it needs, and its rank. Where not all fit, the
/// columns of the greatest ranks are left out.
type Column = (&'static str, u16, u8);

/// Draws a table with those of its columns that fit, one space apart. The last one takes the rest.
fn draw_table<'a>(
    columns: &[Column],
    rows: impl Iterator<Item = Vec<Cell<'a>>>,
    area: Rect,
    buffer: &mut Buffer,
) {
    let fits = |(_, _, rank): &Column| {
        let kept = columns.iter().filter(|(_, _, other)| other <= rank);
        kept.map(|(_, width, _)| width + 1).sum::<u16>() <= area.width + 1
    };
    let shown = |row: Vec<Cell<'a>>| {
        let shown = row.into_iter().zip(columns).filter(|(_, column)| fits(column));
        Row::new(shown.map(|(cell, _)| cell))
    };
    let widths = columns.iter().filter(|column| fits(column));
    let mut widths: Vec<_> = widths.map(|(_, width, _)| Constraint::Length(*width)).collect();
    if let Some(last) = widths.last_mut() {
        *last = Constraint::Fill(1);
    }
    let heading = shown(columns.iter().map(|(name, ..)| Cell::from(*name)).collect());
    Widget::render(Table::new(rows.map(shown), widths).header(heading.style(DIM)), area, buffer);
}

fn draw_queue(view: &Value, area: Rect, buffer: &mut Buffer) {
    let mut title = vec![Span::styled(" Queue ", BOLD)];
    for (name, glyph, color) in PRIORITIES {
        title.extend([Span::styled(glyph, color), Span::raw(format!(" {name} "))]);
    }
    let inner = framed(Line::from(title), area, buffer);
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
    let name = inner.width.saturating_sub(6 + 7 + 7 + 4 + 4).clamp(8, 16);
    let columns =
        [("tenant", name, 0), ("weight", 6, 3), ("running", 7, 2), ("waiting", 7, 1), ("", 4, 4)];
    // The columns are one space apart.
    let room = usize::from(inner.width.saturating_sub(16 + 6 + 7 + 7 + 4));
    let rows = tenants.into_iter().map(|tenant| {
        vec![
            Cell::from(one_line(&tenant["tenant"])),
            Cell::from(whole(&tenant["weight"]).to_string()),
            Cell::from(count(whole(&tenant["running"]))),
            Cell::from(count(waiting(tenant))),
            Cell::from(bar(tenant, deepest, room)),
        ]
    });
    let [above, below] =
        Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(inner);
    Paragraph::new(line_of(figures, inner.width)).render(above, buffer);
    draw_table(&columns, rows, below, buffer);
}

fn waiting(tenant: &Value) -> u64 {
    let depths = PRIORITIES.iter().map(|(priority, ..)| depth(tenant, priority));
    depths.fold(0, u64::saturating_add)
}

/// Draws a tenant's waiting jobs by priority; `room` is the length for `deepest` jobs.
fn bar(tenant: &Value, deepest: u64, room: usize) -> Line<'static> {
    let parts = PRIORITIES.iter().map(|(priority, glyph, color)| {
        let jobs = depth(tenant, priority);
        let length = (share(jobs, deepest) * room as f64).round() as usize;
        let length = if jobs == 0 { 0 } else { length.max(1) };
        Span::styled(glyph.repeat(length), *color)
    });
    Line::from_iter(parts)
}

fn draw_latencies(view: &Value, area: Rect, buffer: &mut Buffer) {
    let inner = framed(Line::styled(" Latency ", BOLD), area, buffer);
    const COLUMNS: [Column; 6] = [
        ("step", 6, 0),
        ("jobs", 6, 5),
        ("p50", 7, 1),
        ("p95", 7, 2),
        ("p99", 7, 3),
        ("max", 7, 4),
    ];
    let rows = ["queue", "resume", "run", "reset"].into_iter().map(|step| {
        let times = &view["latency"][step];
        let jobs = whole(&times["count"]);
        let told = |name| if jobs == 0 { "-".to_owned() } else { time(real(&times[name])) };
        let times = ["p50_seconds", "p95_seconds", "p99_seconds", "max_seconds"].map(told);
        [step.to_owned(), count(jobs)].into_iter().chain(times).map(Cell::from).collect()
    });
    draw_table(&COLUMNS, rows, inner, buffer);
}

fn draw_memory(memory: &Value, area: Rect, buffer: &mut Buffer) {
    let inner = framed(Line::styled(" Memory ", BOLD), area, buffer);
    let (used, limit) = (used_bytes(memory), whole(&memory["limit_bytes"]));
    let share = share(used, limit);
    let (bytes_used, percent) = (size(used), format!("{:.0}%", share * 100.0));
    let forms = [
        format!(" {bytes_used} of {}, {percent}", size(limit)),
        format!(" {bytes_used}, {percent}"),
    ];
    let width = usize::from(inner.width);
    let figures = forms.into_iter().find(|form| form.chars().count() <= width).unwrap_or_default();
    let room = width - figures.chars().count();
    let full = (share * room as f64).round() as usize;
    let style = if share > 0.9 { ALARM } else { Style::new().fg(Color::Green) };
    let gauge = [
        Span::styled("█".repeat(full), style),
        Span::styled("░".repeat(room - full), DIM),
        Span::raw(figures),
    ];
    let parts = [
        ("shared", "shared_bytes"),
        ("slots", "slot_bytes"),
        ("sessions", "session_bytes"),
        ("waiting", "queued_bytes"),
        ("running", "in_flight_bytes"),
        ("on disk", "disk_bytes"),
    ];
    let mut lines = vec![Line::from_iter(gauge)];
    for some in parts.chunks(figures_a_line(inner.width)) {
        let figures = some.iter().map(|(name, part)| (*name, size(whole(&memory[*part]))));
        lines.push(columns(figures, inner.width));
    }
    Paragraph::new(lines).render(inner, buffer);
}

fn draw_sessions(places: &Value, area: Rect, buffer: &mut Buffer) {
    let inner = framed(Line::styled(" Sessions ", BOLD), area, buffer);
    let all = ["on_workers", "suspended", "compressed", "on_disk", "fresh", "lost"]
        .map(|place| (place.replace('_', " "), whole(&places[place])));
    let open = all.iter().fold(0, |open: u64, (_, sessions)| open.saturating_add(*sessions));
    let mut lines = vec![columns([("open", count(open))].into_iter(), inner.width)];
    for some in all.chunks(figures_a_line(inner.width)) {
        let figures = some.iter().map(|(name, sessions)| (name.as_str(), count(*sessions)));
        lines.push(columns(figures, inner.width));
    }
    Paragraph::new(lines).render(inner, buffer);
}

/// Draws trees of forks, unless there are none or no room for them.
fn draw_trees(trees: &Value, area: Rect, buffer: &mut Buffer) {
    if area.is_empty() {
        return;
    }
    let inner = framed(Line::styled(" Forks ", BOLD), area, buffer);
    // What the other columns leave; each is followed by a space.
    let room = usize::from(inner.width.saturating_sub(16 + 6 + 5 + 3));
    let rows = list(trees).iter().take(MOST_TREES).map(|tree| {
        let figure = |name| Cell::from(count(whole(&tree[name])));
        let name = Cell::from(one_line(&tree["root"]));
        vec![name, figure("forks"), figure("depth"), Cell::from(levels(tree, room))]
    });
    draw_table(&TREE_COLUMNS, rows, inner, buffer);
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
fn figures_a_line(width: u16) -> usize {
    if width < TWO_COLUMNS { 1 } else { 2 }
}

/// Formats labelled figures in columns that align from line to line.
fn columns<'a>(figures: impl Iterator<Item = (&'a str, String)>, width: u16) -> Line<'static> {
    let column = COLUMN.min(usize::from(width) / figures_a_line(width));
    let cells = figures.flat_map(|(name, figure)| {
        let room = column.saturating_sub(name.chars().count() + 1);
        [Span::styled(format!("{name} "), DIM), Span::raw(format!("{figure:room$}"))]
    });
    Line::from_iter(cells)
}

fn draw_workers(screen: &Screen, area: Rect, buffer: &mut Buffer) {
    let workers = list(&screen.view["workers"]);
    let room = usize::from(area.height.saturating_sub(FRAME + 1));
    // Scrolling stops when the last worker reaches the bottom.
    let first = screen.first_worker.min(workers.len().saturating_sub(room));
    let last = workers.len().min(first + room);
    let which = if room > 0 && workers.len() > room {
        format!("{}–{} of {} ", first + 1, last, workers.len())
    } else {
        format!("{} ", workers.len())
    };
    let title = vec![Span::styled(" Workers ", BOLD), Span::raw(which)];
    let title = Line::from_iter(title.into_iter().chain(isolation(&screen.view["isolation"])));
    let inner = framed(title, area, buffer);
    let (mut columns, has_pythons) =
        (WORKER_COLUMNS.to_vec(), list(&screen.view["pythons"]).len() > 1);
    if !has_pythons {
        columns.remove(PYTHON);
    }
    let rows = workers[first..last].iter().map(|worker| {
        let mut cells = worker_cells(worker);
        if !has_pythons {
            cells.remove(PYTHON);
        }
        cells
    });
    draw_table(&columns, rows, inner, buffer);
}

/// Says that workers are in processes, and how many layers of their wall the system lacks.
fn isolation(isolation: &Value) -> Vec<Span<'static>> {
    let is_in_processes = text(&isolation["workers_in"]) == "processes";
    let missing = match list(&isolation["missing"]).len() {
        _ if !is_in_processes => return Vec::new(),
        0 => return vec![Span::raw("in processes ")],
        1 => "1 layer missing".to_owned(),
        several => format!("{several} layers missing"),
    };
    vec![Span::raw("in processes, "), Span::styled(missing, ALARM), Span::raw(" ")]
}

/// Returns what the kernel counts for a worker's process, if it has one; else what the engine does.
fn memory(worker: &Value) -> u64 {
    worker["process_private_bytes"].as_u64().unwrap_or_else(|| whole(&worker["memory_bytes"]))
}

/// Returns what there is to say of a worker, column by column.
fn worker_cells(worker: &Value) -> Vec<Cell<'_>> {
    let number = |name| worker[name].as_u64().map_or("-".to_owned(), |number| number.to_string());
    let style = match text(&worker["activity"]) {
        "running" => Style::new().fg(Color::Green),
        "backing_off" | "given_up" | "stuck" => ALARM,
        _ => Style::new(),
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
        Cell::from(number("worker")),
        Cell::from(one_line(&worker["python"])),
        Cell::from(one_line(&worker["activity"]).replace('_', " ")).style(style),
        Cell::from(time(real(&worker["since_seconds"]))),
        Cell::from(number("job")),
        Cell::from(number("session")),
        Cell::from(time(real(&worker["age_seconds"]))),
        Cell::from(size(memory(worker))),
        Cell::from(count(whole(&worker["jobs_served"]))),
        Cell::from(told),
    ]
}

fn draw_errors(view: &Value, area: Rect, buffer: &mut Buffer) {
    draw_list(" Last errors ", &view["last_errors"], area, buffer, |error| {
        let named = |name, mark| {
            error[name].as_u64().map_or_else(String::new, |number| format!("{mark}{number}: "))
        };
        let (worker, job) = (named("worker", "worker-"), named("job", "job "));
        format!("{worker}{job}{}", one_line(&error["message"]))
    });
}

fn draw_program_errors(view: &Value, area: Rect, buffer: &mut Buffer) {
    let errors = &view["last_program_errors"];
    draw_list(" Last errors of programs ", errors, area, buffer, |error| {
        let [tenant, exception, message] =
            ["tenant", "exception", "message"].map(|name| one_line(&error[name]));
        format!("{tenant}: job {}: {exception}: {message}", whole(&error["job"]))
    });
}

/// Draws errors, each with its age, unless there is no room for them.
fn draw_list(
    title: &str,
    errors: &Value,
    area: Rect,
    buffer: &mut Buffer,
    describe: impl Fn(&Value) -> String,
) {
    if area.is_empty() {
        return;
    }
    let inner = framed(Line::styled(title, BOLD), area, buffer);
    let lines = list(errors).iter().take(MOST_ERRORS).map(|error| {
        let age = format!("{} ago  ", time(real(&error["age_seconds"])));
        Line::from(vec![Span::styled(age, DIM), Span::raw(describe(error))])
    });
    Paragraph::new(lines.collect::<Vec<_>>()).render(inner, buffer);
}

fn draw_footer(screen: &Screen, area: Rect, buffer: &mut Buffer) {
    let mut spans = Vec::new();
    if let Some(problem) = &screen.problem {
        spans.push(Span::styled(format!("{}  ", without_controls(problem)), ALARM));
    }
    if screen.is_paused {
        spans.push(Span::styled("paused  ", BOLD));
    }
    let keys = format!("{}  q quit  p pause  ↑↓ scroll", screen.address);
    spans.push(Span::styled(keys, DIM));
    Paragraph::new(Line::from(spans)).render(area, buffer);
}

/// Draws a frame, and returns the area inside.
fn framed(title: Line<'_>, area: Rect, buffer: &mut Buffer) -> Rect {
    let block = Block::bordered().title(title).border_style(DIM);
    let inner = block.inner(area);
    block.render(area, buffer);
    inner
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
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
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

    fn drawn(screen: &Screen, columns: u16, lines: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(columns, lines)).unwrap();
        terminal.draw(|frame| draw(screen, frame.area(), frame.buffer_mut())).unwrap();
        plain(terminal.backend().buffer())
    }

    /// `busy.txt` is the drawing of `busy.json`; a change of the one shows in the other.
    #[test]
    fn a_busy_pool_is_drawn_as_expected() {
        let screen = screen(busy());
        let text = as_text(&screen, 100);
        assert!(text == include_str!("busy.txt"), "busy.txt differs from\n{text}");
        let lines = text.lines().count() as u16;
        assert_eq!(drawn(&screen, 100, lines), text);
    }

    #[test]
    fn any_size_can_be_drawn() {
        let screen = screen(busy());
        for (columns, lines) in [(1, 1), (20, 5), (40, 12), (80, 24), (200, 60), (300, 3)] {
            let text = drawn(&screen, columns, lines);
            assert_eq!(text.lines().count(), usize::from(lines));
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
            assert!(text.lines().all(|line| line.chars().count() <= usize::from(columns)));
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
        view["tenants"][0]["tenant"] = "\x1b]0;title\x07".into();
        let text = as_text(&screen(view), 100);
        assert!(text.chars().all(|letter| letter == '\n' || !letter.is_control()), "{text:?}");
    }
}
