//! Bodies that are compressed while they are sent.

use std::io;
use std::task::{Context, Poll};

use bytes::Bytes;
use forebay_engine::BrokenBody;
use http_body::Frame;

use super::Source;
use crate::compress::encoder::Encoder;
use crate::metrics::CompressionCounts;

/// Length in bytes from which output is sent, although the body goes on.
const OUTPUT_MIN: usize = 16 << 10;

/// Maximum number of pieces that are compressed before other tasks of the thread run: a few
/// milliseconds of work.
const PIECES_MAX: usize = 4;

/// Body in a content coding.
pub(super) struct EncodedBody {
    inner: Source,
    /// `None` after the end of the body.
    encoder: Option<Encoder>,
    /// `true` while the encoder holds bytes that the client cannot decode yet.
    is_unflushed: bool,
    trailers: Option<Frame<Bytes>>,
    counts: CompressionCounts,
    before: u64,
    after: u64,
}

impl EncodedBody {
    pub(super) const fn new(inner: Source, encoder: Encoder, counts: CompressionCounts) -> Self {
        let encoder = Some(encoder);
        let (trailers, is_unflushed) = (None, false);
        Self { inner, encoder, is_unflushed, trailers, counts, before: 0, after: 0 }
    }

    pub(super) const fn is_end_stream(&self) -> bool {
        self.encoder.is_none() && self.trailers.is_none()
    }

    pub(super) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenBody>>> {
        for _ in 0..PIECES_MAX {
            let Some(encoder) = &mut self.encoder else {
                return Poll::Ready(self.trailers.take().map(Ok));
            };
            let polled = match self.inner.poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(piece) => {
                        self.before += piece.len() as u64;
                        self.is_unflushed = true;
                        encoder.write(&piece).map(|()| encoder.ready() >= OUTPUT_MIN)
                    }
                    Err(trailers) => {
                        self.trailers = Some(trailers);
                        return self.finish();
                    }
                },
                Poll::Ready(Some(Err(broken))) => return Poll::Ready(Some(Err(broken))),
                Poll::Ready(None) => return self.finish(),
                // The source may take long for the next piece, such as an event.
                Poll::Pending if self.is_unflushed => {
                    self.is_unflushed = false;
                    encoder.flush().map(|()| true)
                }
                Poll::Pending => return Poll::Pending,
            };
            match polled {
                Ok(false) => {}
                Ok(true) => return self.output(),
                Err(error) => return self.failed(error),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn output(&mut self) -> Poll<Option<Result<Frame<Bytes>, BrokenBody>>> {
        let output = self.encoder.as_mut().map(Encoder::take).unwrap_or_default();
        self.after += output.len() as u64;
        Poll::Ready(Some(Ok(Frame::data(output))))
    }

    fn finish(&mut self) -> Poll<Option<Result<Frame<Bytes>, BrokenBody>>> {
        let rest = self.encoder.take().map_or_else(|| Ok(Vec::new()), Encoder::finish);
        match rest {
            Ok(rest) => {
                self.after += rest.len() as u64;
                self.counts.passed(self.before, self.after);
                Poll::Ready(Some(Ok(Frame::data(rest.into()))))
            }
            Err(error) => self.failed(error),
        }
    }

    #[cold]
    fn failed(&mut self, error: io::Error) -> Poll<Option<Result<Frame<Bytes>, BrokenBody>>> {
        self.encoder = None;
        self.counts.failed();
        Poll::Ready(Some(Err(BrokenBody::Source(error.to_string().into()))))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::task::Waker;

    use forebay_semantics::coding::Coding;

    use super::*;
    use crate::compress::encoder::tests::decode;
    use crate::metrics::Metrics;
    use crate::response::body::{Part, PartSequence};

    fn encoded(coding: Coding, pieces: &[&[u8]]) -> EncodedBody {
        let parts: VecDeque<Part> =
            pieces.iter().map(|piece| Part::Text(Bytes::copy_from_slice(piece))).collect();
        let left = pieces.iter().map(|piece| piece.len() as u64).sum();
        let inner = Source::Parts(Box::new(PartSequence { parts, left }));
        let counts = Metrics::new().compressions("shop", coding);
        EncodedBody::new(inner, Encoder::new(coding, None).expect("memory"), counts)
    }

    fn all_of(body: &mut EncodedBody) -> Vec<u8> {
        let mut all = Vec::new();
        let mut cx = Context::from_waker(Waker::noop());
        for _ in 0..1_000 {
            match body.poll_frame(&mut cx) {
                Poll::Ready(None) => return all,
                Poll::Ready(Some(frame)) => {
                    let frame = frame.expect("the body is not broken");
                    all.extend(frame.into_data().expect("data"));
                }
                Poll::Pending => {}
            }
        }
        panic!("the body does not end");
    }

    #[test]
    fn a_body_is_encoded_piece_by_piece() {
        let long = vec![b'x'; 100_000];
        for coding in Coding::ALL {
            let pieces: Vec<&[u8]> = vec![&long, b"a", &long, b"b", b"c", b"d", &long];
            let mut body = encoded(coding, &pieces);
            assert!(!body.is_end_stream());
            assert_eq!(decode(coding, &all_of(&mut body)), pieces.concat());
            assert!(body.is_end_stream());
            let mut empty = encoded(coding, &[]);
            assert_eq!(decode(coding, &all_of(&mut empty)), b"");
        }
    }
}
