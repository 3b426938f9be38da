//! Makes closed segments durable in a thread of its own, because the rings must not wait for `fsync`, however long the
//! disk takes. Segments get their final names in the order in which they were closed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use crate::error::CaptureError;
use crate::segments::Segment;

/// Segments that may wait for the disk; with more, the capture waits.
const QUEUE_LEN: usize = 8;

/// Counts of segments that are durable.
#[derive(Debug, Default)]
pub struct Totals {
    pub segments_count: AtomicU64,
    pub bytes_count: AtomicU64,
    failure: Mutex<Option<CaptureError>>,
}

impl Totals {
    fn fail(&self, error: CaptureError) {
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.get_or_insert(error);
    }

    /// The first failure, if there was any.
    fn outcome(&self) -> Result<(), CaptureError> {
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.clone().map_or(Ok(()), Err)
    }
}

/// Makes closed segments durable, until `finish`.
pub(crate) struct Finisher {
    totals: Arc<Totals>,
    queue: Option<SyncSender<Segment>>,
    thread: Option<JoinHandle<()>>,
}

impl Finisher {
    /// Starts the thread.
    pub fn start(totals: Arc<Totals>) -> Self {
        let (queue, closed) = sync_channel(QUEUE_LEN);
        let counted = Arc::clone(&totals);
        Finisher {
            totals,
            queue: Some(queue),
            thread: Some(thread::spawn(move || make_all_durable(&closed, &counted))),
        }
    }

    /// Queues a segment. Returns the error of an earlier one, if any.
    pub fn take(&mut self, segment: Segment) -> Result<(), CaptureError> {
        let queue = self.queue.as_ref().expect("nothing is written after the end");
        queue.send(segment).expect("the thread ends only after the queue");
        self.totals.outcome()
    }

    /// Waits until all are durable. Returns the first error, if any.
    pub fn finish(&mut self) -> Result<(), CaptureError> {
        self.queue = None;
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the thread does not panic");
        }
        self.totals.outcome()
    }
}

impl Drop for Finisher {
    fn drop(&mut self) {
        let _ = self.finish();
    }
}

fn make_all_durable(closed: &Receiver<Segment>, totals: &Totals) {
    for segment in closed {
        match segment.make_durable() {
            Ok(len) => {
                totals.segments_count.fetch_add(1, Ordering::Relaxed);
                totals.bytes_count.fetch_add(len, Ordering::Relaxed);
            }
            Err(error) => totals.fail(error),
        }
    }
}
