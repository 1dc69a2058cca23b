//! When the pages of a session are marked, and how many at once (`memory/layers/marking.rs`).

/// When pages are marked for the first time, and how many at once.
#[derive(Debug, Clone, Copy)]
pub(super) struct MarkingPolicy {
    /// Bytes that are copied in all before. Marking costs a session 1.3 ms, most of it for faults
    /// in its next turns and before the next session. It saves 30 to 50 µs of CPU time a turn. A
    /// session of turns `x = 1` copies 0.5 MB after each, and 0.2 MB once pages are marked. So this
    /// is 40 of its turns. A session that was marked where it was before needs none of them.
    pub(super) unmarked_bytes: usize,
    /// Pages of a part that are compared; each may fault in the next turn.
    pub(super) compared_pages: usize,
    /// Pages of a part. The kernel notes a mark for each, whether or not it was ever used.
    pub(super) pages: usize,
}

impl Default for MarkingPolicy {
    fn default() -> Self {
        Self { unmarked_bytes: 20 << 20, compared_pages: 32, pages: 1024 }
    }
}
