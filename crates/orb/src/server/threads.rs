//! The starting of a lane's threads.

use std::io;
use std::sync::Arc;

use corelane_sys::thread::{JoinHandle, Scheduling, ThreadBuilder};

use super::architecture::Architecture;
use super::handler::RequestHandler;
use super::lane::Lane;
use crate::event::Event;
use crate::thread_context;

pub(super) type Run<S, H> = fn(&Arc<Lane<S>>, &Arc<H>);

pub(crate) fn start<S: Architecture<S>, H: RequestHandler>(
    lane: &Arc<Lane<S>>,
    handler: &Arc<H>,
    threads: &mut Vec<JoinHandle<()>>,
) -> io::Result<()> {
    lane.strategy.start(&mut ThreadStarter { lane, handler, threads })
}

/// If the kernel refuses the cores or the scheduling, the thread runs in the ordinary class, and an event reports the
/// refusal. Threads of the builder's pools inherit the scheduling of their starter.
pub(super) fn spawn<S: Architecture<S>, H: RequestHandler>(
    lane: &Arc<Lane<S>>,
    handler: &Arc<H>,
    name: String,
    run: impl Fn(&Arc<Lane<S>>, &Arc<H>) + Clone + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let body = |native| {
        let (lane, handler, run) = (Arc::clone(lane), Arc::clone(handler), run.clone());
        move || {
            thread_context::set_owner(handler.context().stamp());
            thread_context::enter_lane(lane.identity(handler.context().stamp()), native);
            run(&lane, &handler);
        }
    };
    let builder = ThreadBuilder::new()
        .name(name.clone())
        .stack_size(lane.config.thread_stack_size)
        .prefault_stack(handler.context().config().locks_memory);
    let Some(role) = &lane.role else { return builder.spawn(body(None)) };
    let builder = builder.preferred_affinity(handler.context().cores());
    let mut wanted = builder.clone().scheduling(role.scheduling.unwrap_or(Scheduling::Other));
    if let Some(cores) = role.cores {
        wanted = wanted.affinity(cores);
    }
    match wanted.spawn(body(role.scheduling)) {
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::PermissionDenied
                    | io::ErrorKind::InvalidInput
                    | io::ErrorKind::ResourceBusy
                    | io::ErrorKind::Unsupported
            ) =>
        {
            handler
                .context()
                .events()
                .report(&Event::ThreadSchedulingRefused { thread: name, error: error.to_string() });
            builder.scheduling(Scheduling::Other).spawn(body(None))
        }
        spawned => spawned,
    }
}

pub(crate) struct ThreadStarter<'a, S, H> {
    pub(super) lane: &'a Arc<Lane<S>>,
    pub(super) handler: &'a Arc<H>,
    pub(super) threads: &'a mut Vec<JoinHandle<()>>,
}

impl<S: Architecture<S>, H: RequestHandler> ThreadStarter<'_, S, H> {
    pub(super) fn spawn(
        &mut self,
        role: char,
        count: usize,
        run: impl Fn(&Arc<Lane<S>>, &Arc<H>) + Clone + Send + 'static,
    ) -> io::Result<()> {
        for index in 0..count {
            let name = format!("{}/{role}{index}", self.lane.config.name);
            self.threads.push(spawn(self.lane, self.handler, name, run.clone())?);
        }
        Ok(())
    }
}
