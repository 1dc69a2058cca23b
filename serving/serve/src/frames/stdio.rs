//! Standard input and output as streams.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::unix::pipe;

/// Returns standard input and output, on pipes without a thread in between.
pub(super) fn streams() -> (Box<dyn AsyncRead + Unpin + Send>, Box<dyn AsyncWrite + Unpin + Send>) {
    let reader = copy_of(std::io::stdin().as_fd())
        .and_then(|file| pipe::Receiver::from_file(file).ok())
        .map_or_else(|| Box::new(tokio::io::stdin()) as Box<_>, |pipe| Box::new(pipe) as Box<_>);
    let writer = copy_of(std::io::stdout().as_fd())
        .and_then(|file| pipe::Sender::from_file(file).ok())
        .map_or_else(|| Box::new(tokio::io::stdout()) as Box<_>, |pipe| Box::new(pipe) as Box<_>);
    (reader, writer)
}

fn copy_of(stream: BorrowedFd<'_>) -> Option<File> {
    stream.try_clone_to_owned().ok().map(File::from)
}
