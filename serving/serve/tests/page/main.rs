//! The page in a real browser: Debian's Chromium, driven by its WebDriver. Where there is no browser
//! the tests say so and pass, but not where `CI` is set.
#![expect(clippy::unwrap_used, reason = "a test that can't go on fails")]

/// Who may do what: tokens, and the buttons that need them.
mod access;
mod browser;
/// Programs that try to be more than text.
mod hostile;
/// The component as a part of other pages.
mod life;
/// How it looks, how it is reached, and the pictures of the guide.
mod looks;
/// What it shows of the pool and of programs.
mod pool;
/// What it shows of recordings.
mod recording;
mod server;
