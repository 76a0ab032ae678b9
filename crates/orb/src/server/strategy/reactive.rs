//! The reactive architecture: one thread reads and runs all requests of a lane.

use std::io;

use crate::server::architecture::Architecture;
use crate::server::config::NestedWait;
use crate::server::handler::RequestHandler;
use crate::server::lane_loop;
use crate::server::nested_wait::SERVE_WHILE_WAITING;
use crate::server::threads::ThreadStarter;

#[derive(Debug)]
pub(crate) struct Reactive;

impl<S: Architecture<S>> Architecture<S> for Reactive {
    fn start<H: RequestHandler>(&self, threads: &mut ThreadStarter<'_, S, H>) -> io::Result<()> {
        threads.spawn('l', 1, lane_loop::run)
    }

    #[inline]
    fn has_one_thread(&self) -> bool {
        true
    }

    fn may_spin(&self) -> bool {
        true
    }

    fn may_poll_rings(&self) -> bool {
        true
    }

    fn default_nested_wait(&self) -> NestedWait {
        // If the only thread blocked, no other request could run.
        SERVE_WHILE_WAITING
    }
}
