//! Workers that a guest has taken over: native code of this test runs in them, through the test hook.
//!
//! It makes the attempts of `tests/support/src/attempts.rs` in real workers of a real pool, wrecks what a
//! worker can reach, and dies in many ways. Each is refused, or costs that one job; the pool goes on.
//!
//! The helper forks without an `exec`, so it has to be this program. Hence there is a `main` that
//! becomes the helper, and not the usual harness. Names of tests on the command line select those
//! that contain one of them.
#![expect(unsafe_code, reason = "system calls that have to be refused, and ways to die")]
#![expect(clippy::unwrap_used, reason = "a test that can't go on fails")]

use std::sync::Arc;

use engine::{Engine, EngineConfig, Image, ImageSpec, ProgressSink, Silent};

mod evicted;
mod inside;
mod outside;
mod refused;
mod ways;

const TESTS: &[(&str, fn())] = &[
    ("every_attempt_is_refused", refused::every_attempt_is_refused),
    (
        "workers_share_no_file_that_they_can_write",
        refused::workers_share_no_file_that_they_can_write,
    ),
    (
        "workers_share_no_memory_that_they_can_write",
        refused::workers_share_no_memory_that_they_can_write,
    ),
    ("a_worker_that_wrecks_all_harms_none", ways::a_worker_that_wrecks_all_harms_none),
    ("the_pool_outlives_every_way_to_die", ways::the_pool_outlives_every_way_to_die),
    (
        "a_session_outlives_the_worker_on_which_it_rests",
        ways::a_session_outlives_the_worker_on_which_it_rests,
    ),
    ("evicted_pages_are_not_missed", evicted::evicted_pages_are_not_missed),
    ("nothing_is_left", ways::nothing_is_left),
    ("this_program_has_the_test_hook", this_program_has_the_test_hook),
];

fn main() {
    process::open_test_hook(inside::carry_out);
    process::be_helper(|_| load().map_err(|error| error.to_string()));
    let filters: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let is_list = std::env::args().any(|argument| argument == "--list");
    for (name, test) in TESTS {
        if !filters.is_empty() && !filters.iter().any(|filter| name.contains(filter)) {
            continue;
        }
        if !is_list {
            test();
        }
        println!(
            "{}",
            if is_list { format!("{name}: test") } else { format!("test {name} ... ok") }
        );
    }
}

/// Loads the default build and its image, here and in the helper.
fn load() -> Result<Image, Box<dyn std::error::Error>> {
    let progress: Arc<dyn ProgressSink> = Arc::new(Silent);
    let engine = Engine::load(&EngineConfig::from_env(), &progress)?;
    Ok(Image::load_or_build(&engine, &ImageSpec::default(), &progress)?)
}

/// So a search for the text in released programs finds a test hook: `cli/tests/all/isolation.rs`.
fn this_program_has_the_test_hook() {
    let program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    let text = process::TEST_HOOK.as_bytes();
    assert!(program.windows(text.len()).any(|found| found == text));
}
