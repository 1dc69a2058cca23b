//! The Python that runs in sandboxes around candidates and tests.

/// A candidate's interpreter.
pub(crate) const CANDIDATE: &str = concat!(
    include_str!("guest/values.py"),
    include_str!("guest/candidate.py"),
    "\nserve_candidate(globals().pop('hatchery_code'))\n"
);

/// A judge's interpreter. The report is its value.
pub(crate) const JUDGE: &str = concat!(
    include_str!("guest/values.py"),
    include_str!("guest/judge.py"),
    include_str!("guest/suites.py"),
    "\njudge(hatchery_task)\n"
);

/// The first turn of a session in which tests run beside their candidate: what the second compares.
pub(crate) const SHARED_BEGIN: &str =
    concat!(include_str!("guest/shared.py"), "\nsnapshot('hatchery_snapshot')\n");

/// The second turn: the candidate's code.
pub(crate) const SHARED_LOAD: &str =
    concat!(include_str!("guest/load.py"), "\nload(globals().pop('hatchery_code'))\n");

/// The third turn: the tests.
pub(crate) const SHARED_TEST: &str = concat!(
    include_str!("guest/values.py"),
    include_str!("guest/judge.py"),
    include_str!("guest/suites.py"),
    include_str!("guest/shared.py"),
    "\njudge_beside(globals().pop('hatchery_task'), globals().pop('hatchery_token'))\n"
);

/// Calls a checker's function. Its value is what that returns.
pub(crate) const CHECKER: &str = concat!(include_str!("guest/checker.py"), "\nrun_checker()\n");
