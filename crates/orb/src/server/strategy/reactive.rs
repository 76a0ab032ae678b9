//! Reactive: one thread reads and runs all requests of a lane.

use std::io;

use super::{Architecture, ThreadStarter};
use crate::server::config::NestedWait;
use crate::server::handler::RequestHandler;
use crate::server::nested_wait::SERVE_WHILE_WAITING;

/// The reactive architecture.
#[derive(Debug)]
pub(crate) struct Reactive;

impl Architecture for Reactive {
    fn start<H: RequestHandler>(&self, threads: &mut ThreadStarter<'_, H>) -> io::Result<()> {
        threads.spawn('l', 1, |lane, handler| lane.run(handler))
    }

    #[inline]
    fn has_one_thread(&self) -> bool {
        true
    }

    fn default_nested_wait(&self) -> NestedWait {
        // If the only thread blocked, no other request would run.
        SERVE_WHILE_WAITING
    }
}
