//! The half-sync/half-async architecture: one thread reads requests into a bounded queue, and other
//! threads run them.

pub(in crate::server) mod fair_queue;
pub(in crate::server) mod request_queue;

use std::io;
use std::sync::Arc;

use corelane_sys::thread::JoinHandle;

use crate::nested_wait::AwaitedReply;
use crate::server::architecture::{Architecture, MessagePlacement};
use crate::server::connection::{Connection, WaitingRequest};
use crate::server::handler::RequestHandler;
use crate::server::lane::Lane;
use crate::server::lane_loop;
use crate::server::message::Message;
use crate::server::nested_wait;
use crate::server::threads::ThreadStarter;
use crate::server::worker::Worker;
use request_queue::{QueuedRequest, RequestQueue};

const MAX_QUEUED_READS: usize = 16;

#[derive(Debug)]
pub(crate) struct HalfSync {
    threads: usize,
    queue: Arc<RequestQueue>,
}

impl HalfSync {
    pub(super) fn new(threads: usize, max_queued: usize, max_queued_bytes: usize) -> io::Result<Self> {
        Ok(HalfSync { threads, queue: Arc::new(RequestQueue::new(max_queued, max_queued_bytes)?) })
    }

    #[cfg(test)]
    pub(super) fn queue(&self) -> &RequestQueue {
        &self.queue
    }

    fn enqueue<S: Architecture<S>, H: RequestHandler>(
        &self,
        lane: &Lane<S>,
        handler: &Arc<H>,
        worker: &mut Worker,
        connection: &Arc<Connection>,
        message: Message,
    ) {
        let mut displaced = Vec::new();
        if let Err(message) = self.queue.push(connection, message, &mut displaced) {
            worker.reject_overloaded(handler, connection, &message);
        }
        if !displaced.is_empty() {
            reject_displaced(lane, handler, worker, displaced);
        }
    }

    fn run_until_arrival<S: Architecture<S>, H: RequestHandler>(
        &self,
        lane: &Lane<S>,
        handler: &Arc<H>,
        worker: &mut Worker,
        awaited: &AwaitedReply<'_>,
    ) -> io::Result<()> {
        // The thread checks for the reply before each request, because requests may arrive without
        // end.
        while !awaited.has_arrived()? {
            match self.queue.try_pop() {
                Some((waiting, message)) => lane.run_waiting(handler, worker, waiting, message),
                None => {
                    awaited.wait_or_work(self.queue.readiness())?;
                }
            }
        }
        Ok(())
    }
}

#[cold]
fn reject_displaced<S: Architecture<S>, H: RequestHandler>(
    lane: &Lane<S>,
    handler: &Arc<H>,
    worker: &mut Worker,
    displaced: Vec<QueuedRequest>,
) {
    for (waiting, message) in displaced {
        if let Some(_guard) = lane.guard_connection(&waiting) {
            worker.reject_overloaded(handler, &waiting, &message);
        }
    }
}

fn run_queue_thread<S: Architecture<S>, H: RequestHandler>(
    lane: &Arc<Lane<S>>,
    handler: &Arc<H>,
    queue: &RequestQueue,
) {
    let mut worker = Worker::new();
    nested_wait::enter(lane, handler);
    while let Some((waiting, message)) = queue.pop() {
        lane.run_waiting(handler, &mut worker, waiting, message);
    }
    crate::nested_wait::uninstall();
}

impl<S: Architecture<S>> Architecture<S> for HalfSync {
    fn start<H: RequestHandler>(&self, threads: &mut ThreadStarter<'_, S, H>) -> io::Result<()> {
        threads.spawn('l', 1, lane_loop::run)?;
        let queue = Arc::clone(&self.queue);
        let run = move |lane: &Arc<Lane<S>>, handler: &Arc<H>| run_queue_thread(lane, handler, &queue);
        threads.spawn('w', self.threads.max(1), run)
    }

    fn max_queued_of_connection(&self) -> usize {
        self.queue.connection_share()
    }

    // Inlining would lengthen the code that lanes of other architectures run.
    #[inline(never)]
    fn place_message<H: RequestHandler>(
        &self,
        lane: &Lane<S>,
        handler: &Arc<H>,
        worker: &mut Worker,
        connection: &Arc<Connection>,
        detached: &mut Option<Message>,
        more: bool,
    ) -> MessagePlacement {
        let message = detached.take().unwrap_or_else(|| worker.detach());
        self.enqueue(lane, handler, worker, connection, message);
        MessagePlacement::Elsewhere { reads_on: more }
    }

    #[inline]
    fn max_reads(&self) -> usize {
        MAX_QUEUED_READS
    }

    fn requeue(&self, _: &Lane<S>, waiting: WaitingRequest, message: Message) {
        self.queue.requeue(waiting, message);
    }

    /// Runs queued requests until the wait is over. The reading thread of the lane continues to
    /// fill the queue.
    fn wait_nested<H: RequestHandler>(
        &self,
        lane: &Lane<S>,
        handler: &Arc<H>,
        worker: &mut Worker,
        awaited: &AwaitedReply<'_>,
    ) -> io::Result<()> {
        self.queue.add_listener();
        let waited = self.run_until_arrival(lane, handler, worker, awaited);
        self.queue.remove_listener();
        waited
    }

    fn stop(&self) -> Vec<JoinHandle<()>> {
        self.queue.stop();
        Vec::new()
    }
}
