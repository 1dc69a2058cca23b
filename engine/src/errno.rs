//! The error numbers of WASI preview 1, which WASIX uses too, that Hatchery's host returns.

/// What a host function returns, or what it calls.
pub(crate) type Result<T = (), E = Errno> = std::result::Result<T, E>;

/// An error of a host function, with its number in WASI preview 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[repr(u16)]
pub(crate) enum Errno {
    Access = 2,
    NoAddress = 4,
    AddressFamily = 5,
    Again = 6,
    Already = 7,
    BadDescriptor = 8,
    Child = 12,
    ConnectionAborted = 13,
    ConnectionRefused = 14,
    ConnectionReset = 15,
    Deadlock = 16,
    Exists = 20,
    Fault = 21,
    TooLargeFile = 22,
    HostUnreachable = 23,
    IllegalSequence = 25,
    InProgress = 26,
    Interrupted = 27,
    Invalid = 28,
    InputOutput = 29,
    IsConnected = 30,
    IsFolder = 31,
    Loop = 32,
    TooManyOpen = 33,
    NameTooLong = 37,
    NetworkUnreachable = 40,
    NoBuffers = 42,
    NoEntry = 44,
    NoProtocolOption = 50,
    NoSpace = 51,
    NoFunction = 52,
    NotConnected = 53,
    NotFolder = 54,
    NotEmpty = 55,
    NotSocket = 57,
    NotSupported = 58,
    Overflow = 61,
    NotPermitted = 63,
    BrokenPipe = 64,
    Range = 68,
    ReadOnly = 69,
    NotSeekable = 70,
    NoProcess = 71,
    Stale = 72,
    TimedOut = 73,
}

impl Errno {
    /// Returns the number that a host function returns for this error; 0 is success.
    pub(crate) fn code(self) -> i32 {
        i32::from(self as u16)
    }
}
