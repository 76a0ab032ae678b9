//! The recorder, to which the server and the clients report.

use std::sync::Arc;
use std::time::Duration;

use corelane::{Completion, ObjectRef, SystemException, SystemExceptionKind};
use corelane_sys::clock::now;
use corelane_sys::mpsc::Mailbox;

use super::PATIENCE;
use super::process::Process;
use crate::Result;
use crate::avionics::{EventComputerRef, MapStoreRef, MissionComputerRef, Recorder, Report};

pub(super) enum RecorderMessage {
    Serving(Box<Served>),
    Report(Report),
}

/// The objects of the server.
pub(super) struct Served {
    pub(super) flight: ObjectRef,
    pub(super) maps: ObjectRef,
    /// The admission object; `None` if the server admits no tasks.
    pub(super) tasks: Option<ObjectRef>,
    /// The mission computer on an event channel; `None` if the clients call the computer
    /// ([`Form::Direct`](crate::Form::Direct)).
    pub(super) events: Option<EventComputerRef>,
    pub(super) scheduling: String,
}

pub(super) struct RecorderServant(pub(super) Arc<Mailbox<RecorderMessage>>);

impl RecorderServant {
    fn hear(&self, heard: RecorderMessage) -> Result<(), SystemException> {
        let full = |_| SystemException::new(SystemExceptionKind::NoResources, 0, Completion::No);
        self.0.send(heard).map_err(full)
    }
}

impl Recorder for RecorderServant {
    fn serves(
        &self,
        flight: Option<&MissionComputerRef>,
        maps: Option<&MapStoreRef>,
        tasks: Option<&ObjectRef>,
        events: Option<&EventComputerRef>,
        scheduling: &str,
    ) -> Result<(), SystemException> {
        let nil = || SystemException::new(SystemExceptionKind::BadParam, 0, Completion::No);
        self.hear(RecorderMessage::Serving(Box::new(Served {
            flight: flight.ok_or_else(nil)?.as_object().clone(),
            maps: maps.ok_or_else(nil)?.as_object().clone(),
            tasks: tasks.cloned(),
            events: events.cloned(),
            scheduling: scheduling.into(),
        })))
    }

    fn take(&self, latest: &Report) -> Result<(), SystemException> {
        self.hear(RecorderMessage::Report(latest.clone()))
    }
}

/// Waits until the server is ready.
pub(super) fn served(heard: &Mailbox<RecorderMessage>, server: &mut Process) -> Result<Served> {
    let end = now() + PATIENCE;
    while !end.is_past() && server.ended()?.is_none() {
        if let Some(RecorderMessage::Serving(served)) = heard.receive_until(Some(now() + Duration::from_millis(100)))? {
            return Ok(*served);
        }
    }
    server.finish(Duration::from_secs(1))?;
    Err("the server ended before it was ready".into())
}
