//! The machine code of stubs. x86-64.
//!
//! A stub loads its function's index into `r11` and the address of the table of the rest
//! (`rest.rs`) into `r10`, and jumps to the address that the table begins with. Both registers are
//! free in every function's first instruction: the calling convention passes nothing in them. The
//! table's address is in a word behind the image's data, which is written when it is loaded.

/// What a stub takes; functions begin at multiples of it.
pub(in super::super) const STUB_BYTES: usize = 16;

/// Returns the stub for `function` at the address `at`, for a word at the address `word`; `None` if
/// that is too far away.
pub(in super::super) fn stub(function: u32, at: u64, word: u64) -> Option<[u8; STUB_BYTES]> {
    let mut stub = [0; STUB_BYTES];
    // mov r11d, function
    stub[..2].copy_from_slice(&[0x41, 0xbb]);
    stub[2..6].copy_from_slice(&function.to_le_bytes());
    // mov r10, [rip + distance]
    let distance = word.checked_signed_diff(at + 13)?;
    stub[6..9].copy_from_slice(&[0x4c, 0x8b, 0x15]);
    stub[9..13].copy_from_slice(&i32::try_from(distance).ok()?.to_le_bytes());
    // jmp [r10]
    stub[13..].copy_from_slice(&[0x41, 0xff, 0x22]);
    Some(stub)
}
