//! Shows the progress of a slow first start: a bar on a terminal, plain lines elsewhere. Also notes
//! a cache that has grown large.

use std::io::IsTerminal;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use bytesize::ByteSize;
use hatchery::config::CACHE_BOUND_VARIABLE;
use hatchery::error::counted;
use hatchery::progress::{Progress, ProgressSink};
use indicatif::{ProgressBar, ProgressStyle};

use crate::terminal;

/// Returns the form of progress that suits standard error.
pub(crate) fn sink() -> Display {
    if terminal::is_quiet() {
        Display::Nothing
    } else if std::io::stderr().is_terminal() {
        Display::Bar(Mutex::default())
    } else {
        Display::Lines(AtomicU64::new(0))
    }
}

/// How progress is shown.
pub(crate) enum Display {
    /// A bar while compiling, a message otherwise; nothing when everything is cached.
    Bar(Mutex<Option<ProgressBar>>),
    /// A line per step, and one for every tenth of compiling. Holds the number of tenths so far.
    Lines(AtomicU64),
    Nothing,
}

impl ProgressSink for Display {
    fn report(&self, progress: Progress) {
        match (progress, self) {
            (Progress::LargeCache { bytes, bound_bytes }, _) => {
                let [bytes, bound] = [bytes, bound_bytes].map(ByteSize::b);
                let size = bound.to_string().replace(' ', "");
                terminal::note(format_args!(
                    "the cache has grown to {bytes}, above the bound of {bound}; `hatchery cache \
                     prune --to-size {size}` removes what was used least recently, and \
                     {CACHE_BOUND_VARIABLE} sets the bound"
                ));
            }
            (Progress::ForeignModule, _) => terminal::note(
                "the compiled module isn't used: it is of another version of Hatchery, or for CPUs \
                 with other features; make one with `hatchery python precompile`",
            ),
            (Progress::StartedEarly, _) => terminal::note(
                "part of Python is compiled, so programs can start; those that need the rest wait \
                 for it",
            ),
            (_, Self::Nothing) => {}
            (Progress::Hiding(count), _) => terminal::note(format_args!(
                "the image has imported {} that programs import; `--preload none` turns this off",
                counted(count, "module")
            )),
            (progress, Self::Bar(bar)) => draw(bar, progress),
            (progress, Self::Lines(tenths)) => print(tenths, progress),
        }
    }
}

fn text(progress: Progress) -> Option<String> {
    match progress {
        Progress::Fetching { what, bytes } => {
            Some(format!("downloading {what} ({} MB, once)", bytes / 1_000_000))
        }
        Progress::Extracting(what) => Some(format!("verifying and extracting {what}")),
        Progress::FetchingPackages => Some("downloading packages with pip, once".to_owned()),
        Progress::Compiling { .. } => Some("compiling Python for this machine, once".to_owned()),
        Progress::Unpacking => Some("unpacking the compiled module".to_owned()),
        Progress::Storing => Some("storing the compiled module".to_owned()),
        Progress::BuildingImage(what) => Some(format!("building an image, once: {what}")),
        _ => None,
    }
}

fn draw(bar: &Mutex<Option<ProgressBar>>, progress: Progress) {
    let Ok(mut bar) = bar.lock() else { return };
    if progress == Progress::Ready {
        if let Some(bar) = bar.take() {
            bar.finish_and_clear();
        }
        return;
    }
    let Some(text) = text(progress) else { return };
    let bar = bar.get_or_insert_with(|| terminal::bars().add(ProgressBar::new_spinner()));
    if let Progress::Compiling { done, total } = progress {
        if bar.length() != Some(total) {
            let style = ProgressStyle::with_template("{msg} {wide_bar} {percent}% {eta}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar.set_length(total);
            bar.set_message(text);
        }
        bar.set_position(done);
    } else {
        bar.set_style(ProgressStyle::default_spinner());
        bar.unset_length();
        bar.set_message(text);
        bar.tick();
    }
}

fn print(tenths: &AtomicU64, progress: Progress) {
    if let Progress::Compiling { done, total } = progress {
        let tenth = done * 10 / total.max(1);
        if tenths.fetch_max(tenth + 1, Ordering::Relaxed) > tenth {
            return;
        }
        if tenth > 0 {
            terminal::note(format_args!("compiled {}%", tenth * 10));
            return;
        }
    }
    if let Some(text) = text(progress) {
        terminal::note(text);
    }
}
