//! What a remote server says, as it comes out of its session: the same judgement as for lines, with
//! the call on whose own stream it came.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::{LISTING_LINES, Link};
use crate::server::pending::{Answer, Failure};
use crate::transport::http::Replies;
use crate::transport::stdio::Inbox;

impl Replies for Arc<Link> {
    fn line(&self, line: Bytes) {
        self.read(&line, None);
    }

    fn line_of(&self, call: u64, line: Bytes) {
        self.read(&line, Some(call));
    }

    fn fail(&self, call: u64, failure: Failure) {
        if self.pending.contains(call) {
            self.finish(call, Answer::Failed(failure));
        }
    }

    fn waits(&self, call: u64) -> bool {
        self.pending.contains(call)
    }

    fn most_bytes(&self, call: u64) -> usize {
        match self.is_listing(call) {
            true => LISTING_LINES * self.limits.line_bytes,
            false => self.limits.line_bytes,
        }
    }

    fn rest(&self) -> Option<Duration> {
        Inbox::rest(self)
    }

    fn missed_news(&self) {
        self.lists.heard();
    }

    fn doubt(&self) {
        self.doubted.notify_one();
    }
}
