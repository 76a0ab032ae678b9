//! The loop of a thread that handles events and tasks of a lane.

use std::sync::Arc;

use super::architecture::Architecture;
use super::handler::RequestHandler;
use super::lane::Lane;
use super::nested_wait;
use super::worker::Worker;
use crate::event::Event;

pub(super) fn run<S: Architecture<S>, H: RequestHandler>(lane: &Arc<Lane<S>>, handler: &Arc<H>) {
    let mut worker = Worker::new();
    if let Some(groups) = lane.core_groups() {
        worker.group = groups.enter();
    }
    nested_wait::enter(lane, handler);
    while !lane.is_stopping() {
        let stepped = lane.step(handler, &mut worker, None);
        if let Err(error) = stepped.and_then(|()| lane.strategy.after_task(lane, handler, &mut worker)) {
            handler
                .context()
                .events()
                .report(&Event::ThreadFailed { message: format!("{}: {error}", lane.config.name) });
            break;
        }
    }
    crate::nested_wait::uninstall();
    lane.wake();
}
