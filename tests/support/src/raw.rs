//! System calls without the C library in between.
#![expect(unsafe_code, reason = "system calls by number")]

/// Makes a system call without the C library in between; errors are negative.
pub fn raw<const N: usize>(number: libc::c_long, arguments: [libc::c_long; N]) -> libc::c_long {
    let mut six = [0; 6];
    six[..N].copy_from_slice(&arguments);
    let [a, b, c, d, e, f] = six;
    // SAFETY: a test's call, with pointers to what lives that long; what it does is the test's matter.
    let result = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    if result == -1 {
        let error = std::io::Error::last_os_error().raw_os_error().unwrap_or(1);
        return -libc::c_long::from(error);
    }
    result
}
