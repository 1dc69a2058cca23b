//! The Python that runs in sandboxes around candidates and tests.

use std::borrow::Cow;
use std::io;
use std::path::Path;

use hatchery::Builder;

/// The sources of these files, one behind the other.
macro_rules! sources {
    ($($file:literal)*) => { concat!($(include_str!(concat!("guest/", $file, ".py"))),*) };
}

/// What both sides of an exchange have.
macro_rules! exchanging {
    () => {
        sources!("limits" "differences" "kinds" "ordering" "frames" "values" "hearing"
            "surroundings" "stands")
    };
}

/// What runs tests.
macro_rules! judging {
    () => {
        concat!(
            exchanging!(),
            sources!("judge" "pytest_features" "reports" "collecting" "sources" "calls" "suites")
        )
    };
}

/// The modules in the image of both interpreters, with their files and sources: no sample waits for
/// them.
const MODULES: [(&str, &str); 2] = [
    ("hatchery_candidate.py", concat!(exchanging!(), sources!("candidate"))),
    ("hatchery_judge.py", judging!()),
];

/// A candidate's interpreter.
pub(crate) const CANDIDATE: &str = "from hatchery_candidate import serve_candidate\n\
     serve_candidate(globals().pop('hatchery_code'))\n";

/// A judge's interpreter. The report is its value.
pub(crate) const JUDGE: &str = "from hatchery_judge import judge\njudge(hatchery_task)\n";

/// Looks for what can't be run in the tests of a task. Its value says that, if there is any.
pub(crate) const CHECK: &str = "from hatchery_judge import check\ncheck(hatchery_task)\n";

/// The first turn of a session in which tests run beside their candidate: what the second compares.
pub(crate) const SHARED_BEGIN: &str =
    concat!(sources!("shared"), "\nsnapshot('hatchery_snapshot')\n");

/// The second turn: the candidate's code.
pub(crate) const SHARED_LOAD: &str =
    concat!(sources!("limits" "differences" "load"), "\nload(globals().pop('hatchery_code'))\n");

/// The third turn: the tests.
pub(crate) const SHARED_TEST: &str = concat!(
    judging!(),
    sources!("shared"),
    "\njudge_beside(globals().pop('hatchery_task'), globals().pop('hatchery_token'))\n"
);

/// Runs a program with standard input again. Its value is the limit of the sandbox that the program meets,
/// if there is one.
pub(crate) const DOUBT: &str = "from hatchery_judge import limit_met\n\
     limit_met(globals().pop('hatchery_code'), globals())\n";

/// Calls a checker's function. Its value is what that returns.
pub(crate) const CHECKER: &str = concat!(sources!("checker"), "\nrun_checker()\n");

/// Returns code in which `sys.maxsize`, which programs take for infinity, is that of 64 bits, as where they
/// were written.
pub(crate) fn with_wide_maxsize(code: &str) -> Cow<'_, str> {
    const NAME: &str = "sys.maxsize";
    const IMPORT: &str = "from sys import maxsize\n";
    const LARGEST: &str = "9223372036854775807";
    if !code.contains("maxsize") {
        return Cow::Borrowed(code);
    }
    let (mut wide, mut rest) = (String::with_capacity(code.len()), code);
    while let Some((before, after)) = rest.split_once(NAME) {
        let is_other =
            before.ends_with(|last: char| last.is_alphanumeric() || "_.'\"".contains(last));
        wide.extend([before, if is_other { NAME } else { LARGEST }]);
        rest = after;
    }
    wide.push_str(rest);
    Cow::Owned(wide.replace(IMPORT, &format!("{}; maxsize = {LARGEST}\n", IMPORT.trim_end())))
}

/// Adds the modules to an image. Their files are written below `folder`, which must stay until the pool
/// has started.
pub(crate) fn preload(builder: Builder, folder: &Path) -> io::Result<Builder> {
    let folder = folder.join("grade");
    std::fs::create_dir(&folder)?;
    for (file, source) in MODULES {
        std::fs::write(folder.join(file), source)?;
    }
    let names = MODULES.map(|(file, _)| file.trim_end_matches(".py"));
    Ok(builder.package(folder).preload(names))
}

#[cfg(test)]
mod tests {
    use super::with_wide_maxsize;

    #[test]
    fn only_the_name_itself_is_replaced() {
        let code =
            "x = -sys.maxsize\npatch('sys.maxsize', mysys.maxsize)\nfrom sys import maxsize\n";
        let wide = "x = -9223372036854775807\npatch('sys.maxsize', mysys.maxsize)\n\
                    from sys import maxsize; maxsize = 9223372036854775807\n";
        assert_eq!(with_wide_maxsize(code), wide);
        assert_eq!(with_wide_maxsize("x = 1"), "x = 1");
    }
}
