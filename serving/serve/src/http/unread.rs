//! What a client still sends of a request that is already answered.
//!
//! Many clients read nothing before they have sent a whole body. If the connection ended in the
//! middle, they would see a broken connection in place of the answer (RFC 9112, section 9.6). So the
//! server receives the rest and drops it, within bounds.

use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::extract::Request;
use axum::http::header;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::timeout;

/// The most bytes that are dropped. A connection that has more to send ends.
const MOST_BYTES: u64 = 256 << 20;
/// The longest that a client may take to send the rest.
const MOST_TIME: Duration = Duration::from_secs(30);
/// The longest that it may send nothing.
const MOST_PAUSE: Duration = Duration::from_secs(5);

/// A body of a request; what nobody reads of it is received and dropped.
#[derive(Debug)]
pub(super) struct Unread {
    body: Body,
    /// Whether the client sends it only when it is told to go on.
    is_held_back: bool,
    is_over: bool,
    closes: watch::Receiver<bool>,
}

impl Unread {
    /// Wraps the body of a request. Nothing more is received once the server closes.
    pub(super) fn wrap(request: Request, closes: watch::Receiver<bool>) -> Request {
        let is_held_back = request.headers().contains_key(header::EXPECT);
        request.map(|body| Body::new(Self { body, is_held_back, is_over: false, closes }))
    }
}

impl HttpBody for Unread {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.is_held_back = false;
        let frame = Pin::new(&mut self.body).poll_frame(context);
        self.is_over = matches!(frame, Poll::Ready(None | Some(Err(_))));
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        let is_over = self.is_over || self.body.is_end_stream();
        if is_over || self.is_held_back || self.body.size_hint().lower() > MOST_BYTES {
            return;
        }
        // There is none while the runtime ends, and then the connections end with it.
        if let Ok(runtime) = Handle::try_current() {
            let (body, mut closes) = (mem::take(&mut self.body), self.closes.clone());
            runtime.spawn(async move {
                tokio::select! {
                    _ = timeout(MOST_TIME, drop_all(body)) => {}
                    _ = closes.wait_for(|closes| *closes) => {}
                }
            });
        }
    }
}

/// Receives what is left of a body, up to the bounds.
async fn drop_all(mut body: Body) {
    let mut left = MOST_BYTES;
    while let Ok(Some(Ok(frame))) = timeout(MOST_PAUSE, body.frame()).await {
        let length = frame.data_ref().map_or(0, Bytes::len);
        match left.checked_sub(length as u64) {
            Some(less) => left = less,
            None => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use axum::http::HeaderValue;
    use futures_util::stream;

    use super::*;

    #[expect(clippy::disallowed_methods, reason = "of a paused clock")]
    async fn pass(time: Duration) {
        tokio::time::sleep(time).await;
    }

    /// Returns a request that sends a mebibyte after each pause, and how many bytes were received.
    fn endless(pause: Duration) -> (Request, Arc<AtomicU64>) {
        let received = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&received);
        let chunks = stream::unfold((), move |()| {
            let counted = Arc::clone(&counted);
            async move {
                pass(pause).await;
                counted.fetch_add(1 << 20, Ordering::Relaxed);
                Some((Ok::<_, Infallible>(Bytes::from_static(&[0; 1 << 20])), ()))
            }
        });
        (Request::new(Body::from_stream(chunks)), received)
    }

    /// Drops a request unread, and returns how many bytes were received within a minute.
    async fn left(request: Request, received: &AtomicU64, closes: watch::Receiver<bool>) -> u64 {
        drop(Unread::wrap(request, closes));
        pass(Duration::from_secs(60)).await;
        received.load(Ordering::Relaxed)
    }

    #[tokio::test(start_paused = true)]
    async fn the_rest_is_received_within_bounds() {
        let (close, closes) = watch::channel(false);
        let mebibytes = async |pause| {
            let (request, received) = endless(Duration::from_millis(pause));
            left(request, &received, closes.clone()).await >> 20
        };
        assert_eq!(mebibytes(1).await, 257);
        assert_eq!(mebibytes(1100).await, 27);
        assert_eq!(mebibytes(6000).await, 0);
        close.send_replace(true);
        assert_eq!(mebibytes(1).await, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_waits_to_be_told_is_not_told() {
        let (_close, closes) = watch::channel(false);
        let (mut request, received) = endless(Duration::from_millis(1));
        request.headers_mut().insert(header::EXPECT, HeaderValue::from_static("100-continue"));
        assert_eq!(left(request, &received, closes.clone()).await, 0);
        // Once it was told, it sends.
        let (mut request, received) = endless(Duration::from_millis(1));
        request.headers_mut().insert(header::EXPECT, HeaderValue::from_static("100-continue"));
        let mut request = Unread::wrap(request, closes);
        request.body_mut().frame().await.unwrap().unwrap();
        drop(request);
        pass(Duration::from_secs(60)).await;
        assert_eq!(received.load(Ordering::Relaxed) >> 20, 258);
    }
}
