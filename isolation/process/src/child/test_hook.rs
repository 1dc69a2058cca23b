//! Runs native code of a test in a confined worker, like a guest that broke out of its sandbox.
//!
//! Only the feature `test-hook` compiles this, and nothing but the crate's own test turns that on.

use std::sync::OnceLock;

/// A source that begins so is for the test hook.
pub const TEST_HOOK: &str = "# hatchery test hook: ";

/// Gets the rest of the source, and returns the source that the interpreter is to run instead.
type Code = fn(&str) -> String;

static CODE: OnceLock<Code> = OnceLock::new();

/// Has the workers of this program run `code` for each source that begins with [`TEST_HOOK`]. Called
/// before [`be_helper`](crate::be_helper); the first call counts.
pub fn open_test_hook(code: Code) {
    CODE.get_or_init(|| code);
}

/// Lets a source through.
pub(crate) fn pass(source: &mut String) {
    if let (Some(rest), Some(code)) = (source.strip_prefix(TEST_HOOK), CODE.get()) {
        *source = code(rest);
    }
}
