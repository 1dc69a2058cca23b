//! What `hatchery top` shows.
//!
//! A [`Source`] fetches the status from a batch with `--metrics` or from a server, and a [`Screen`]
//! shows a status: as text, as a widget of ratatui, or live in the terminal ([`watch`]).

pub(crate) use screen::Screen;
pub(crate) use source::{Source, SourceError};
pub(crate) use watch::{screen_width, watch};

mod draw;
mod numbers;
#[cfg(test)]
mod samples;
mod screen;
mod source;
mod view;
mod watch;
