//! The tests, each of which forks.
#![expect(unsafe_code, reason = "forks, and system calls that have to be refused")]
#![expect(clippy::unwrap_used, reason = "a test that can't go on fails")]

mod layers;
mod needed;
mod refusals;
mod support;

const TESTS: &[(&str, fn())] = &[
    ("refusals::every_attempt_is_refused", refusals::every_attempt_is_refused),
    ("refusals::harmless_ones_would_succeed", refusals::harmless_ones_would_succeed),
    (
        "refusals::other_entries_to_the_kernel_are_closed",
        refusals::other_entries_to_the_kernel_are_closed,
    ),
    ("refusals::every_unlisted_number_is_refused", refusals::every_unlisted_number_is_refused),
    ("layers::all_layers_show_from_outside", layers::all_layers_show_from_outside),
    ("layers::a_second_handler_changes_nothing", layers::a_second_handler_changes_nothing),
    ("layers::limits_hold", layers::limits_hold),
    ("layers::only_harmless_descriptors_are_kept", layers::only_harmless_descriptors_are_kept),
    ("layers::a_process_with_threads_is_refused", layers::a_process_with_threads_is_refused),
    ("layers::it_dies_with_its_parent", layers::it_dies_with_its_parent),
    ("layers::a_parent_that_is_gone_is_noticed", layers::a_parent_that_is_gone_is_noticed),
    ("layers::children_share_namespaces", layers::children_share_namespaces),
    ("layers::confining_takes_no_time", layers::confining_takes_no_time),
    ("needed::a_worker_does_its_work", needed::a_worker_does_its_work),
];

/// Runs the tests that the command line selects.
pub(crate) fn run_tests() {
    let filters: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let is_list = std::env::args().any(|argument| argument == "--list");
    support::be_parent();
    for (name, test) in TESTS {
        if !filters.is_empty() && !filters.iter().any(|filter| name.contains(filter)) {
            continue;
        }
        if is_list {
            println!("{name}: test");
            continue;
        }
        test();
        println!("test {name} ... ok");
    }
}
