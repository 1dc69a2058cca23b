//! The Python that runs in sandboxes around candidates and tests.

/// What both sides of an exchange have.
macro_rules! exchanging {
    () => {
        concat!(
            include_str!("guest/kinds.py"),
            include_str!("guest/ordering.py"),
            include_str!("guest/frames.py"),
            include_str!("guest/values.py"),
            include_str!("guest/surroundings.py"),
            include_str!("guest/stands.py"),
        )
    };
}

/// What runs tests.
macro_rules! judging {
    () => {
        concat!(
            exchanging!(),
            include_str!("guest/judge.py"),
            include_str!("guest/pytest_features.py"),
            include_str!("guest/reports.py"),
            include_str!("guest/collecting.py"),
            include_str!("guest/sources.py"),
            include_str!("guest/calls.py"),
            include_str!("guest/suites.py"),
        )
    };
}

/// A candidate's interpreter.
pub(crate) const CANDIDATE: &str = concat!(
    exchanging!(),
    include_str!("guest/candidate.py"),
    "\nserve_candidate(globals().pop('hatchery_code'))\n"
);

/// A judge's interpreter. The report is its value.
pub(crate) const JUDGE: &str = concat!(judging!(), "\njudge(hatchery_task)\n");

/// Looks for what can't be run in the tests of a task. Its value says that, if there is any.
pub(crate) const CHECK: &str = concat!(judging!(), "\ncheck(hatchery_task)\n");

/// The first turn of a session in which tests run beside their candidate: what the second compares.
pub(crate) const SHARED_BEGIN: &str =
    concat!(include_str!("guest/shared.py"), "\nsnapshot('hatchery_snapshot')\n");

/// The second turn: the candidate's code.
pub(crate) const SHARED_LOAD: &str =
    concat!(include_str!("guest/load.py"), "\nload(globals().pop('hatchery_code'))\n");

/// The third turn: the tests.
pub(crate) const SHARED_TEST: &str = concat!(
    judging!(),
    include_str!("guest/shared.py"),
    "\njudge_beside(globals().pop('hatchery_task'), globals().pop('hatchery_token'))\n"
);

/// Calls a checker's function. Its value is what that returns.
pub(crate) const CHECKER: &str = concat!(include_str!("guest/checker.py"), "\nrun_checker()\n");
